"""A chart as data: series, units, caption. `output.plot` draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tfacct.base.record import record
from tfacct.output.report import Kind


@record
class Chart:
    """Series over a shared axis, with labels.

    areas and lines: values over numbers, areas stacked. bars: values over names, stacked in rows from the top. `unit`:
    the unit of the values.
    """

    kind: Literal["areas", "lines", "bars"]
    title: str
    caption: str
    x_label: str
    y_label: str
    x: Sequence[int | str]
    series: Mapping[str, Sequence[float]]
    unit: Kind
    hues: Sequence[int] = ()
    """Number of each series' colour, the same for the same thing in every picture; empty: in turn."""
    marks: Sequence[tuple[int, str]] = ()
    """Places on the axis of numbers, and what is there."""
    levels: Sequence[tuple[int, str]] = ()
    """Values, and what they are."""
    ends: Sequence[str] = ()
    """Texts at the ends of the rows."""
    side_charts: Sequence[Chart] = ()
    """Pictures of other units under the same title."""
