"""Draws each kind of chart into matplotlib axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tfacct.output import labels, scales
from tfacct.output.chart import Chart
from tfacct.output.labels import POINTS, End
from tfacct.output.look import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 8
"""Markers on a line in the print style."""
IN_A_ROW = 4
"""Entries of a legend line."""


def draw(axes: Axes, chart: Chart, look: Look, *, named: bool = True) -> None:
    """Draw a chart: series, axis labels, marks. The caller adds title and caption.

    `named` false: another chart of the figure has the legend.
    """
    _dress(axes, look)
    axes.set_xlabel(chart.x_label, color=look.ink)
    axes.set_ylabel(chart.y_label, color=look.ink)
    {"areas": _areas, "lines": _lines, "bars": _bars}[chart.kind](axes, chart, look)
    if named and chart.kind == "bars" and len(chart.series) + len(chart.levels) > 1:
        _legend(axes, look)


def _dress(axes: Axes, look: Look) -> None:
    axes.set_facecolor(look.ground)
    axes.tick_params(colors=look.ink, labelsize=POINTS, length=3)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(look.ink)
        spine.set_linewidth(0.8)
    axes.set_axisbelow(True)


def _hues(chart: Chart) -> list[int]:
    return list(chart.hues or range(len(chart.series)))


def _areas(axes: Axes, chart: Chart, look: Look) -> None:
    floor = [0.0] * len(chart.x)
    ends = []
    for (name, values), number in zip(chart.series.items(), _hues(chart), strict=True):
        top = [below + value for below, value in zip(floor, values, strict=True)]
        axes.fill_between(list(chart.x), floor, top, facecolor=look.hue(number), label=name, **look.fill(number))
        colour = look.ink if look.printed else look.hue(number)
        ends.append(End(float(chart.x[-1]), (floor[-1] + top[-1]) / 2, name, colour))
        floor = top
    scales.against_numbers(axes, chart)
    _labels_right(axes, chart, look, ends)


def _lines(axes: Axes, chart: Chart, look: Look) -> None:
    ends = []
    for (name, values), number in zip(chart.series.items(), _hues(chart), strict=True):
        known = [(x, y) for x, y in zip(chart.x, values, strict=True) if isinstance(x, int) and not math.isnan(y)]
        stroke = look.stroke(number)
        if look.printed:
            stroke["markevery"] = max(1, len(known) // FEW)
        axes.plot(*zip(*known, strict=True), clip_on=False, label=name, **stroke)
        ends.append(End(*known[-1], name, stroke["color"]))
    scales.against_numbers(axes, chart)
    axes.grid(color=look.faint, linewidth=0.8)
    _labels_right(axes, chart, look, ends if len(ends) > 1 else [])


def _labels_right(axes: Axes, chart: Chart, look: Look, ends: list[End]) -> None:
    """Labels to the right of the axes and above them, and horizontal lines of levels."""
    for level, text in chart.levels:
        axes.axhline(level, color=look.ink, linewidth=0.9, linestyle="--")
        ends.append(End(float(chart.x[-1]), level, text, look.ink))
    if ends:
        labels.at_ends(axes, ends, look)
    if chart.marks:
        labels.above(axes, chart.marks, look)


def _bars(axes: Axes, chart: Chart, look: Look) -> None:
    """Stacked rows from the top."""
    rows = range(len(chart.x))
    floor = [0.0] * len(chart.x)
    for (name, values), number in zip(chart.series.items(), _hues(chart), strict=True):
        fill = look.fill(number)
        axes.barh(rows, list(values), 0.8, left=floor, label=name, facecolor=look.hue(number), **fill)
        floor = [below + value for below, value in zip(floor, values, strict=True)]
    axes.set_ylim(len(chart.x) - 0.5, -0.5)
    axes.set_yticks(list(rows), [str(name) for name in chart.x])
    axes.tick_params(axis="y", length=0)
    longest = 1.0 if chart.unit == "share" else max(floor)
    axes.set_xlim(0, max([longest, *(level for level, _ in chart.levels)]) or 1)
    scales.value_ticks(axes.xaxis, chart.unit, most=7)
    axes.grid(axis="x", color=look.faint, linewidth=0.8)
    for level, text in chart.levels:
        axes.axvline(level, color=look.ink, linewidth=0.9, linestyle="--", label=text)
    for row, (value, text) in enumerate(zip(floor, chart.ends, strict=False)):
        _write_end(axes, row, value, text, look)


def _write_end(axes: Axes, row: int, value: float, text: str, look: Look) -> None:
    """Write a text at the end of a row."""
    axes.annotate(
        text,
        (value, row),
        xytext=(4, 0),
        textcoords="offset points",
        va="center_baseline",
        color=look.ink,
        fontsize=POINTS,
        annotation_clip=False,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": look.ground, "edgecolor": "none"},
    )


def _legend(axes: Axes, look: Look) -> None:
    """The legend above the rows, in the order of the series."""
    handles, labels = axes.get_legend_handles_labels()
    lines = [line for line in handles if line in axes.lines]  # matplotlib lists lines first
    bars = [bar for bar in handles if bar not in lines]
    axes.legend(
        [*bars, *lines],
        labels[len(lines) :] + labels[: len(lines)],
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=min(len(handles), IN_A_ROW),
        labelcolor=look.ink,
        fontsize=POINTS,
        frameon=False,
        borderpad=0.2,
        columnspacing=1.4,
        handlelength=1.4,
        handletextpad=0.5,
    )
