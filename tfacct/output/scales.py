"""Scales and ticks of axes: powers of two for bytes and tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tfacct.base import units
from tfacct.output.chart import Chart
from tfacct.output.report import Column, Kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

WIDE, HIGH = 8, 4
"""Ratios of largest to smallest, of numbers and of values, above which both axes are logarithmic."""
MOST = 8
"""Most ticks of an axis."""
BASES = {"bytes": 2, "flops": 10, "params": 10, "ratio": 10}
STEPS = {2: (1, 2, 5, 10, 20), 10: (1, 2, 3, 6)}
"""Powers from one unit to the next: ten powers of two, three powers of ten."""
FINER = {2: (1,), 10: (1, 2, 5)}
"""Multiples of each power that have a tick on an axis with few powers."""


def tick_text(unit: Kind, value: float) -> str:
    """Text of a value at a tick, as in tables."""
    if unit == "share":
        return units.percent(value, 0)
    if value == 0:
        return "0"
    return Column("", "", unit if unit in ("flops", "params", "bytes") else "number").text(value)


def against_numbers(axes: Axes, chart: Chart) -> None:
    """Scale both axes of a chart over numbers: both logarithmic or both linear, so that straight lines stay straight.

    Only shares are linear over a logarithmic axis: a straight line of shares has no meaning.
    """
    numbers = [place for place in chart.x if isinstance(place, int)]
    values = [value for row in chart.series.values() for value in row if not math.isnan(value)]
    share = chart.unit == "share"
    tops = [sum(stack) for stack in zip(*chart.series.values(), strict=True)] if chart.kind == "areas" else values
    top = max([*tops, *(level for level, _ in chart.levels)]) or 1
    far = min(numbers) > 0 and max(numbers) >= WIDE * min(numbers)
    both = not share and chart.kind == "lines" and far and 0 < HIGH * min(values) <= max(values)
    if both:
        axes.set_yscale("log", base=BASES.get(chart.unit, 10))
        axes.set_ylim(*_outer_powers(min(values), top, BASES.get(chart.unit, 10)))
    else:
        axes.set_ylim(0, 1 if share else top * 1.04)
    logarithmic = both or (share and far)
    from_zero = not logarithmic and HIGH * min(numbers) <= max(numbers)
    axes.set_xlim(0 if from_zero else min(numbers), max(numbers))
    if logarithmic:
        axes.set_xscale("log", base=2)
    _number_ticks(axes.xaxis, [0, *numbers] if from_zero else numbers, logarithmic)
    value_ticks(axes.yaxis, chart.unit, logarithmic=both)


def value_ticks(axis: Axis, unit: Kind, *, logarithmic: bool = False, most: int = MOST) -> None:
    """Put ticks of this unit on an axis whose limits are set."""
    low, high = axis.get_view_interval()
    if logarithmic:
        places = _powers(low, high, BASES.get(unit, 10), most)
    elif unit == "bytes":
        places = _multiples(high, most)
    else:
        from matplotlib.ticker import MaxNLocator

        found = MaxNLocator(nbins=min(most, 6), steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        places = [float(place) for place in found if low <= place <= high * (1 + 1e-9)]
    _fix(axis, places, [tick_text(unit, place) for place in places])


def _number_ticks(axis: Axis, numbers: Sequence[int], logarithmic: bool) -> None:
    """The numbers themselves if they are few and apart, else powers or multiples of two."""
    numbers = sorted(set(numbers))
    low, high = numbers[0], numbers[-1]
    at = [math.log(n / low) / math.log(high / low) if logarithmic else (n - low) / (high - low) for n in numbers]
    apart = all(b - a >= 0.09 for a, b in pairwise(at))
    if len(numbers) <= MOST + 1 and apart:
        places: list[float] = list(numbers)
    else:
        places = _powers(low, high, 2, MOST + 1) if logarithmic else _multiples(high, MOST, low)
    _fix(axis, places, [f"{place:,.0f}" for place in places])


def _powers(low: float, high: float, base: int, most: int) -> list[float]:
    """Powers of the base within the limits; for ten also 1, 2 and 5 times them if there are fewer than two powers."""
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    step = next((step for step in STEPS[base] if (last - first) // step < most), 10 * (last - first))
    start = math.ceil(first / step) * step if base == 2 and step >= 5 else first
    places = [float(base) ** power for power in range(start, last + 1, step)]
    if base == 10 and len(places) < 3:
        finer = [times * 10.0**power for power in range(first - 1, last + 1) for times in FINER[base]]
        return [place for place in finer if low <= place <= high]
    return places


def _outer_powers(low: float, high: float, base: int) -> tuple[float, float]:
    """The nearest places of ticks that are not above `low` and not below `high`."""
    powers = range(math.floor(math.log(low, base)) - 1, math.ceil(math.log(high, base)) + 1)
    places = [times * float(base) ** power for power in powers for times in FINER[base]]
    return max(place for place in places if place <= low), min(place for place in places if place >= high)


def _multiples(high: float, most: int, low: float = 0) -> list[float]:
    """Multiples of a power of two up to `high`."""
    step = 2 ** max(0, math.ceil(math.log2(max(high - low, 1) / (most - 2))))
    return [float(place) for place in range(math.ceil(low / step) * step, math.floor(high) + 1, step)]


def _fix(axis: Axis, places: Sequence[float], texts: Sequence[str]) -> None:
    from matplotlib.ticker import NullLocator

    axis.set_ticks(list(places), labels=list(texts))
    axis.set_minor_locator(NullLocator())
