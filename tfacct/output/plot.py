"""Charts as pictures, by matplotlib: readable in grey, no letter under 9 points, never half-written."""

from __future__ import annotations

import math
import os
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfacct.base import units
from tfacct.base.errors import MissingExtraError, UsageError
from tfacct.base.spelling import option
from tfacct.output.chart import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
POINTS = 9
INCHES = (7.5, 5.0)
GREYS = ("0.25", "0.55", "0.78", "0.92")
HATCHES = ("", "///", "...", "\\\\\\")
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FEW = 10
"""Markers on a line, which tell it from the others."""


def check(file: str, *, force: bool) -> Path:
    """The file that a picture may be written to, links followed. Raises UsageError before anything is drawn."""
    asked = Path(file)
    if asked.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"{option('plot', file)}: no picture ends in {asked.suffix or 'nothing'!r}", f"use {', '.join(ENDINGS)}"
        )
    try:
        path = asked.resolve()
        if path.is_dir() or not path.parent.is_dir():
            what = "that is a folder" if path.is_dir() else f"no folder {asked.parent}"
            raise UsageError(f"{option('plot', file)}: {what}")
        if (path.exists() or asked.is_symlink()) and not force:
            raise UsageError(f"{option('plot', file)} is there already", f"{option('force', True)} overwrites it")
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{option('plot', file[:60])}: {getattr(error, 'strerror', None) or error}") from None
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{option('plot', file)}: {path.parent} cannot be written to")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtraError(f"{option('plot')} needs matplotlib", MissingExtraError.PLOT) from None
    return path


def save(chart: Chart, path: Path) -> None:
    """Draw a chart into `path`: written beside it first, so that no half of a picture is ever there."""
    from matplotlib import rc_context

    figure = draw(chart)
    beside = ""
    try:
        handle, beside = tempfile.mkstemp(suffix=path.suffix, prefix=".drawing-", dir=path.parent)
        os.close(handle)
        with rc_context({"svg.hashsalt": "tfacct"}):  # the same chart gives the same file
            figure.savefig(beside, format=path.suffix[1:].lower(), dpi=150, metadata=_undated(path))
        Path(beside).chmod(0o666 & ~_umask())
        Path(beside).replace(path)
    except OSError as error:
        raise UsageError(f"{option('plot', str(path))}: {error.strerror or error}") from None
    finally:
        if beside:
            Path(beside).unlink(missing_ok=True)


def _umask() -> int:
    """Permissions that a new file may not have; there is no way to ask but to set them."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _undated(path: Path) -> dict[str, Any]:
    """No date in the file."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})


def draw(chart: Chart) -> Figure:
    """The figure of a chart."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": POINTS + 1, "hatch.linewidth": 0.6}):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.add_subplot()
        {"areas": _areas, "bars": _bars, "lines": _lines}[chart.kind](axes, chart)
        axes.set_title(textwrap.fill(chart.title, 80), fontsize=POINTS + 2, loc="left")
        axes.set_xlabel(chart.x_label)
        axes.set_ylabel(chart.y_label)
        _write_values(axes, chart)
        figure.supxlabel(textwrap.fill(chart.caption, 108), fontsize=POINTS, x=0.01, ha="left")
    return figure


def _areas(axes: Axes, chart: Chart) -> None:
    stacks = axes.stackplot(
        list(chart.x), *chart.series.values(), labels=list(chart.series), colors=GREYS, edgecolor="0.1", linewidth=0.5
    )
    for stack, hatch in zip(stacks, HATCHES, strict=False):
        stack.set_hatch(hatch)
    axes.set_ylim(0, 1)
    _log_x(axes, chart)
    if chart.mark is not None:
        place, text = chart.mark
        axes.axvline(place, color="black", linewidth=1.2, linestyle="--")
        axes.plot([place], [0.5], "o", color="white", markeredgecolor="black", markersize=7)
        low, high = axes.get_xlim()
        early = math.log(place / low) < math.log(high / low) / 3
        axes.annotate(
            textwrap.fill(text, 24),
            (place, 0.5),
            xytext=(10 if early else -10, 24),
            textcoords="offset points",
            ha="left" if early else "right",
            fontsize=POINTS,
            bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "0.3"},
        )
    _legend(axes, chart)


def _bars(axes: Axes, chart: Chart) -> None:
    floor = [0.0] * len(chart.x)
    for (name, values), grey, hatch in zip(chart.series.items(), GREYS, HATCHES, strict=False):
        places = range(len(chart.x))  # not the names: two models may share one
        axes.bar(
            places, list(values), bottom=floor, label=name, color=grey, hatch=hatch, edgecolor="0.1", linewidth=0.5
        )
        floor = [below + value for below, value in zip(floor, values, strict=True)]
    axes.set_ylim(0, 1)
    axes.set_xticks(range(len(chart.x)), [str(place) for place in chart.x])
    if len(chart.x) > 4:
        axes.tick_params(axis="x", rotation=90 if len(chart.x) > 10 else 30)
    _legend(axes, chart)


def _lines(axes: Axes, chart: Chart) -> None:
    for number, (name, values) in enumerate(chart.series.items()):
        axes.plot(
            list(chart.x),
            list(values),
            label=name,
            color=GREYS[number % 2],
            linestyle=STYLES[number % len(STYLES)],
            marker=MARKERS[number % len(MARKERS)],
            markevery=max(1, len(chart.x) // FEW),
            clip_on=False,
        )
    known = [value for values in chart.series.values() for value in values if value == value]
    if chart.unit == "share":
        axes.set_ylim(0, 1)
    elif min(known) > 0 and max(known) / min(known) > 50:
        axes.set_yscale("log", base=2 if chart.unit == "bytes" else 10)
    else:
        axes.set_ylim(bottom=0)
    _log_x(axes, chart)
    axes.grid(color="0.85")
    if len(chart.series) > 1:
        _legend(axes, chart)


def _log_x(axes: Axes, chart: Chart) -> None:
    """Powers of two, spelled in full."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    numbers = [place for place in chart.x if isinstance(place, int)]
    axes.set_xlim(min(numbers), max(numbers))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=10))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _write_values(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import FuncFormatter

    def spoken(value: float, _place: object) -> str:
        match chart.unit:
            case "share":
                return units.percent(value, 0)
            case "flops" | "params" | "bytes":
                spoken = {"flops": units.si, "params": units.people, "bytes": units.binary}[chart.unit]
                return spoken(round(value))
        return f"{value:g}"

    axes.yaxis.set_major_formatter(FuncFormatter(spoken))


def _legend(axes: Axes, chart: Chart) -> None:
    """Beside the picture, in the order in which areas and bars are stacked."""
    handles, labels = axes.get_legend_handles_labels()
    if chart.kind != "lines":
        handles, labels = handles[::-1], labels[::-1]
    axes.legend(handles, labels, fontsize=POINTS, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
