"""A picture as data: what is drawn, in which units, and what the caption says. The view draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tfacct.base.record import record
from tfacct.output.report import Kind


@record
class Chart:
    """Series over a shared axis.

    areas: shares stacked to 100 %, over numbers; bars: shares stacked, over names; lines: values over numbers.
    `unit` is that of the values. `mark`: a place on the axis, and what is there.
    """

    kind: Literal["areas", "bars", "lines"]
    title: str
    caption: str
    x_label: str
    y_label: str
    x: Sequence[int | str]
    series: Mapping[str, Sequence[float]]
    unit: Kind
    mark: tuple[int, str] | None = None
