"""The addition that ends a sublayer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.ledger import Line, Pointwise
from tfacct.notation import Size


@dataclass(frozen=True, slots=True)
class Residual:
    """A sublayer's result added to the stream it read."""

    hidden: Size

    legend: ClassVar[dict[str, str]] = {"D": "hidden size"}

    def axes(self) -> dict[str, Size]:
        """D."""
        return {"D": self.hidden}

    def lines(self, at: str) -> tuple[Line, ...]:
        """One pointwise line."""
        return (Pointwise(at, "B T D"),)
