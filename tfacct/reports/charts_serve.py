"""What the picture of a closed loop shows: rates by users, with their interval."""

from __future__ import annotations

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.output import look
from tfacct.output.chart import Chart
from tfacct.output.report import Report


def serve_chart(report: Report) -> Chart:
    """New tokens per second of all users, by their number. Raises UsageError for one number of users."""
    (facts,) = report.models
    lines = sorted(facts["lines"], key=lambda line: line["users"])
    if len({line["users"] for line in lines}) < 2:
        raise UsageError(f"a picture needs several numbers of {option('users')}", "for example 1,8,64")
    series = {"estimate": [line["tokens_per_second"] for line in lines]}
    hues = [look.BLUE]
    if all(line["interval_80_seconds"] for line in lines):
        for name, end in (("least of 80%", 1), ("most of 80%", 0)):  # a longer request is a lower rate
            times = [line["interval_80_seconds"][end] / line["value_seconds"] for line in lines]
            series[name] = [rate / time for rate, time in zip(series["estimate"], times, strict=True)]
            hues.append(look.SKY)
    subject, _, where = report.title.partition(": ")
    return Chart(
        kind="lines",
        title=f"{subject}: new tokens per second by users, an estimate",
        caption=f"{where[0].upper()}{where[1:]}. {report.notes[0]}",
        x_label="users",
        y_label="new tokens per second",
        x=[line["users"] for line in lines],
        series=series,
        unit="number",
        hues=hues,
    )
