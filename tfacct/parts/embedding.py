"""The two ends of a decoder: token and position tables in front, the head behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.ledger import Line, Matmul, Pointwise, Table
from tfacct.notation import Size


@dataclass(frozen=True, slots=True)
class Embedding:
    """The token table: read by row, never multiplied."""

    vocab: Size
    hidden: Size

    legend: ClassVar[dict[str, str]] = {"V": "vocabulary", "D": "hidden size"}

    def axes(self) -> dict[str, Size]:
        """V and D."""
        return {"V": self.vocab, "D": self.hidden}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The table."""
        return (Table(at, "V D"),)


@dataclass(frozen=True, slots=True)
class Positions:
    """A learned table of absolute positions, added to the token's row."""

    rows: Size
    hidden: Size

    legend: ClassVar[dict[str, str]] = {"P": "rows of the position table", "D": "hidden size"}

    def axes(self) -> dict[str, Size]:
        """P and D."""
        return {"P": self.rows, "D": self.hidden}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The table and the addition."""
        return (Table(at, "P D"), Pointwise(f"{at}.add", "B T D"))


@dataclass(frozen=True, slots=True)
class Head:
    """Logits over the vocabulary, for the O positions the workload asks for.

    Tied: the token table is the weight, so it is stored once and used by two lines.
    """

    hidden: Size
    vocab: Size
    tied: bool = False

    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "V": "vocabulary"}

    def axes(self) -> dict[str, Size]:
        """D and V."""
        return {"D": self.hidden, "V": self.vocab}

    def lines(self, at: str) -> tuple[Line, ...]:
        """One product."""
        return (Matmul(at, "B O D, D V -> B O V", weight="embed" if self.tied else None),)
