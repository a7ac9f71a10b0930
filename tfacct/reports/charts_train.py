"""What the picture of a training step shows: its phases one under the other, in the parts that fill them."""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.base import units
from tfacct.loading.model import LoadedModel
from tfacct.output import look
from tfacct.output.chart import Chart
from tfacct.output.report import Report
from tfacct.reports import compose
from tfacct.reports.budget import usable_words
from tfacct.reports.charts import Y_LABELS

PARTS = {
    "weights": ("weights_bytes", look.BLUE),
    "optimizer state": ("optimizer_bytes", look.SKY),
    "gradients": ("gradients_bytes", look.GREEN),
    "gathered weights": ("gathered_bytes", look.PURPLE),
    "saved": ("saved_bytes", look.ORANGE),
    "temporary": ("temporary_bytes", look.VERMILION),
}
"""What fills a phase → its key, and its colour."""


LEFT_OUT = "No allocator rounding, kernel workspace or device context."


def train_chart(subjects: Sequence[LoadedModel], report: Report) -> Chart:
    """Phases of one model's step, or the peaks of several models', with the budget if one was asked."""
    facts = report.models
    if len(facts) == 1:
        rows, names = facts[0]["phases"], [each["phase"] for each in facts[0]["phases"]]
    else:
        peaks = [(each, each["peak_phase"]) for each in facts]
        rows = [next(row for row in each["phases"] if row["phase"] == at) for each, at in peaks]
        named = {subject.name: compose.name_of(subject) for subject in subjects}
        names = [named[each["model"]] for each in facts]
    parts = {name: [row[key] for row in rows] for name, (key, _) in PARTS.items()}
    there = [name for name, values in parts.items() if any(values)]
    fit, words = facts[0].get("fit"), report.title.partition(": ")[2] or report.title
    peak = units.binary(max(row["total_bytes"] for row in rows))
    return Chart(
        kind="bars",
        title=f"{_subject(subjects, report)} {peak} at {'its' if len(facts) == 1 else 'the largest'} peak",
        caption=f"{words[0].upper()}{words[1:]}. {LEFT_OUT}",
        x_label=Y_LABELS["bytes"],
        y_label="",
        x=names,
        series={name: parts[name] for name in there},
        unit="bytes",
        hues=[PARTS[name][1] for name in there],
        levels=[(fit["budget_bytes"], usable_words(fit))] if fit else [],
        ends=[(units.binary(row["total_bytes"]),) for row in rows],
    )


def _subject(subjects: Sequence[LoadedModel], report: Report) -> str:
    """Subject of the picture's title."""
    if len(report.models) > 1:
        return f"Training steps of {len(report.models)} models take"
    named = {subject.name: compose.name_of(subject) for subject in subjects}
    return f"A training step of {named[report.models[0]['model']]} takes"
