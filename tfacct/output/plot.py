"""Draws charts with matplotlib, into files or axes. No text is below 9 points."""

from __future__ import annotations

import math
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfacct.base.errors import MissingExtraError
from tfacct.output import drawing, files
from tfacct.output.chart import Chart
from tfacct.output.labels import LINE, POINTS
from tfacct.output.look import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
WIDTH = 7.5
"""Inches."""
ROW = 0.2
"""Inches of a row of bars."""
TITLE, CAPTION = 76, 104
"""Characters in a line as wide as the picture."""
HEADING: dict[str, Any] = {"fontsize": POINTS + 2, "fontweight": "bold"}


def check(file: str, *, force: bool) -> Path:
    """The file for a picture, links followed. Raises UsageError before anything is drawn."""
    path = files.check("output", file, ENDINGS, force=force)
    check_matplotlib()
    return path


def check_matplotlib() -> None:
    """Raise MissingExtraError if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtraError("pictures need matplotlib", "plot") from None


def save(chart: Chart, path: Path, look: Look | None = None) -> None:
    """Draw a chart into the file `path`, which is never half written."""
    from matplotlib import rc_context

    figure, kind = draw(chart, look), path.suffix[1:].lower()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with _settings(), rc_context({"svg.hashsalt": "tfacct"}):  # the same chart gives the same file
        files.write("output", path, lambda temporary: figure.savefig(temporary, format=kind, dpi=150, metadata=undated))


def draw(chart: Chart, look: Look | None = None) -> Figure:
    """The figure of a chart, with title and caption."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_inches(chart), layout="constrained")
    _compose(figure, chart, look or Look())
    return figure


def axes(chart: Chart, ax: Axes | None = None, *, look: Look | None = None) -> Axes:
    """Draw a chart and return its axes: `ax`, or those of a new pyplot figure, which a notebook shows.

    A chart with side charts has axes for each under one title; the first are returned. Into `ax` goes only the first
    chart. Raises MissingExtraError without matplotlib.
    """
    check_matplotlib()
    look = look or Look()
    if ax is None:
        from matplotlib import pyplot

        return _compose(pyplot.figure(figsize=_inches(chart), layout="constrained"), chart, look)
    named = len(chart.series) + len(chart.levels) if chart.kind == "bars" else 0
    rows = bool(chart.marks) + math.ceil(named / drawing.IN_A_ROW)
    with _settings():
        ax.set_title(_title(chart.title), loc="left", pad=6 + LINE * rows, color=look.ink, **HEADING)
        drawing.draw(ax, chart, look)
    return ax


def _compose(figure: Figure, chart: Chart, look: Look) -> Axes:
    """Fill a figure and return its first axes."""
    charts = [chart, *chart.side_charts]
    figure.set_facecolor(look.ground)
    with _settings():
        figure.suptitle(_title(chart.title), x=0.01, ha="left", color=look.ink, **HEADING)
        caption = textwrap.fill(_unbroken(chart.caption), CAPTION)
        figure.supxlabel(caption, fontsize=POINTS, x=0.01, ha="left", color=look.ink)
        rows = figure.subplots(len(charts), squeeze=False)[:, 0]
        for axes, each in zip(rows, charts, strict=True):
            drawing.draw(axes, each, look, named=each is chart)
    first: Axes = rows[0]
    return first


def _title(text: str) -> str:
    """The title in lines of about equal length."""
    unbroken = _unbroken(text)
    lines, width = len(textwrap.wrap(unbroken, TITLE)), TITLE
    while width > 1 and len(textwrap.wrap(unbroken, width - 1)) == lines:
        width -= 1
    return textwrap.fill(unbroken, width)


def _unbroken(text: str) -> str:
    """The text with no-break spaces between numbers and units and around operators."""
    return re.sub(r"(?<=\d) (?=[A-Z]i?B?\b)|(?<=[×÷+]) | (?=[×÷+])", "\N{NO-BREAK SPACE}", text)


def _settings() -> Any:
    """Matplotlib settings: font sizes, hatches, no math mode."""
    from matplotlib import rc_context

    return rc_context({"font.size": POINTS + 1, "hatch.linewidth": 0.6, "text.parse_math": False})


def _inches(chart: Chart) -> tuple[float, float]:
    """Size in inches of a figure without overlapping text."""
    if chart.kind in ("areas", "lines"):
        each = max(3.6 if chart.side_charts else 4.6, 1.5 + len(chart.series) * LINE / 72)
        return WIDTH, each * (1 + len(chart.side_charts))
    return WIDTH, max(3.2, 2.1 + ROW * (2 + len(chart.x)))
