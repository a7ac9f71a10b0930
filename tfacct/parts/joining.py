"""What stands in front of a layer for the token after next: the stream and the next token's row, made one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.lines import Line, Matmul, Pointwise
from tfacct.notation import Size
from tfacct.parts.part import Part


@dataclass(frozen=True, slots=True)
class Joining(Part):
    """The stream and the row of the next token, each behind an RMSNorm of its own, side by side through one product."""

    hidden: Size
    eps: float = 1e-6

    letters: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Dj": "stream and row side by side, 2 · D"}

    def axes(self) -> dict[str, Size]:
        """D, and Dj = 2 · D."""
        return {**Part.axes(self), "Dj": 2 * self.hidden}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Two norms and the product."""
        return (
            Pointwise(f"{at}.row_norm", "B T D", weight="D"),
            Pointwise(f"{at}.stream_norm", "B T D", weight="D"),
            Matmul(f"{at}.proj", "B T Dj, Dj D -> B T D"),
        )
