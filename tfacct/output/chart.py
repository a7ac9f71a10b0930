"""A chart as data: series, units, caption. `output.plot` draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal

from tfacct.base.record import record
from tfacct.output.report import Kind


@record
class Chart:
    """Series over a shared axis, with labels.

    areas and lines: values over numbers, areas stacked. bars and pairs: values over names, in rows from the top, bars
    stacked, pairs side by side. `unit`: the unit of the values.
    """

    kind: Literal["areas", "lines", "bars", "pairs"]
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
    ends: Sequence[tuple[str, ...]] = ()
    """Texts at the ends of the bars of each row: one for stacked bars, one for each bar of a pair."""
    reach: Mapping[str, int] = field(default_factory=dict)
    """Place up to which a line is solid; it is dotted beyond."""
    side_charts: Sequence[Chart] = ()
    """Pictures of other units under the same title."""
