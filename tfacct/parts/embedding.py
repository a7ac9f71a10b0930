"""The two ends of a decoder: token and position tables in front, the head behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.lines import Line, Matmul, Pointwise, Table
from tfacct.notation import Size
from tfacct.parts.part import Part


@dataclass(frozen=True, slots=True)
class Embedding(Part):
    """The token table: read by row, never multiplied. `scaled`: each row times √hidden."""

    vocab: Size
    hidden: Size
    scaled: bool = False

    letters: ClassVar[dict[str, str]] = {"vocab": "V", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"V": "vocabulary", "D": "hidden size"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The table, and the scaling of what is read from it."""
        return (Table(at, "V D"), *((Pointwise(f"{at}.scale", "B T D"),) if self.scaled else ()))


@dataclass(frozen=True, slots=True)
class Positions(Part):
    """A learned table of absolute positions, added to the token's row."""

    rows: Size
    hidden: Size

    letters: ClassVar[dict[str, str]] = {"rows": "P", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"P": "rows of the position table", "D": "hidden size"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The table and the addition."""
        return (Table(at, "P D"), Pointwise(f"{at}.add", "B T D"))


@dataclass(frozen=True, slots=True)
class Head(Part):
    """Logits over the vocabulary, for the O positions the workload asks for.

    Tied: the token table is the weight, so it is stored once and used by two lines.
    """

    hidden: Size
    vocab: Size
    tied: bool = False

    letters: ClassVar[dict[str, str]] = {"hidden": "D", "vocab": "V"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "V": "vocabulary"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """One product."""
        return (Matmul(at, "B O D, D V -> B O V", weight="embed" if self.tied else None),)
