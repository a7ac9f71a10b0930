"""The addition that ends a sublayer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.lines import Line, Pointwise
from tfacct.notation import Size
from tfacct.parts.part import Part


@dataclass(frozen=True, slots=True)
class Residual(Part):
    """A sublayer's result added to the stream it read."""

    hidden: Size

    letters: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """One pointwise line."""
        return (Pointwise(at, "B T D", sums=True),)
