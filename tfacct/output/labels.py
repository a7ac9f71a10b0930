"""Labels on a picture instead of a legend: at the end of a line or above a mark, moved apart if they overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tfacct.output.look import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 9
LINE = 1.35 * POINTS
"""Points between lines of text."""
REACH = 20
"""Points between the end of a line and its label."""


class End(NamedTuple):
    """The end of a line or of an area, in data coordinates, and its name."""

    x: float
    y: float
    text: str
    colour: str


def at_ends(axes: Axes, ends: Sequence[End], look: Look) -> None:
    """Label lines and areas to the right of the axes, each with a thin line of its colour."""
    _lay_out(axes)
    box = axes.get_window_extent()
    width, height = (size * 72 / axes.figure.dpi for size in (box.width, box.height))
    places = [axes.transAxes.inverted().transform(axes.transData.transform((end.x, end.y))) for end in ends]
    wanted = [float(y) * height for _, y in places]
    for end, (x, _), at, to in zip(ends, places, wanted, apart(wanted, LINE, 0, height), strict=True):
        axes.annotate(
            end.text,
            (float(x), at / height),
            xycoords="axes fraction",
            xytext=((1 - float(x)) * width + REACH, to - at),
            textcoords="offset points",
            va="center",
            color=look.ink,
            fontsize=POINTS,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": end.colour,
                "linewidth": 1,  # thinner than a curve, and apart from it, so that none seems to go on
                "shrinkA": 2,
                "shrinkB": 4,
                "relpos": (0, 0.5),
            },
        )


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places nearest to the wanted ones with at least `gap` between them, within the limits if there is room.

    Minimizes the squared moves by pooling overlapping neighbours (isotonic regression).

    >>> apart([0, 1, 50], 10, 0, 100)
    [0.0, 10.0, 50.0]
    """
    order = sorted(range(len(wanted)), key=lambda number: wanted[number])
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    pools: list[tuple[float, int]] = []
    for rank, number in enumerate(order):
        pools.append((wanted[number] - rank * gap, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (one, few), (other, more) = pools[-2:]
            pools[-2:] = [((one * few + other * more) / (few + more), few + more)]
    flat = [place for place, count in pools for _ in range(count)]
    highest = high - (len(wanted) - 1) * gap
    found = [0.0] * len(wanted)
    for rank, (number, place) in enumerate(zip(order, flat, strict=True)):
        found[number] = float(max(low, min(place, highest)) + rank * gap)
    return found


def above(axes: Axes, marks: Sequence[tuple[float, str]], look: Look) -> None:
    """Mark one or two places by thin lines with labels above the axes, apart from each other."""
    _lay_out(axes)
    sentences = [
        axes.annotate(
            text,
            (place, 1),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 3),
            textcoords="offset points",
            ha=_side(axes, place),
            va="bottom",
            color=look.ink,
            fontsize=POINTS,
            annotation_clip=False,
        )
        for place, text in sorted(marks)
    ]
    for place, _ in marks:
        axes.axvline(place, color=look.ink, linewidth=0.9)
    if len(sentences) == 2 and sentences[0].get_window_extent().x1 + POINTS > sentences[1].get_window_extent().x0:
        sentences[0].set(ha="right", position=(-3, 3))
        sentences[1].set(ha="left", position=(3, 3))


def _side(axes: Axes, place: float) -> str:
    """The side of a mark for its label, so that the label stays within the axes."""
    (at, _) = axes.transAxes.inverted().transform(axes.transData.transform((place, 0)))
    return "left" if at < 0.15 else "right" if at > 0.85 else "center"


def _lay_out(axes: Axes) -> None:
    """Lay the axes out at their final size, so that text can be measured."""
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.draw_without_rendering()
