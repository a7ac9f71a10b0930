"""The two ends of a model: token, position and segment tables in front, the head behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tfacct.lines import Line, Matmul, Pointwise, Table
from tfacct.notation import Size
from tfacct.parts.part import Part


@dataclass(frozen=True, slots=True)
class Embedding(Part):
    """The token table: read by row, never multiplied. `scaled`: each row times √hidden.

    With `width` its rows are so long, and a product makes them `hidden`. `shared`: the rows are those of another table,
    the decoder's, and stored there.
    """

    vocab: Size
    hidden: Size
    scaled: bool = False
    width: Size | None = None
    shared: bool = False

    letters: ClassVar[dict[str, str]] = {"vocab": "V", "hidden": "D", "width": "De"}
    legend: ClassVar[dict[str, str]] = {"V": "vocabulary", "D": "hidden size", "De": "width of the token table"}

    def axes(self) -> dict[str, Size]:
        """The sizes; of a shared table those of its rows alone, where anything is done to them."""
        if not self.shared:
            return Part.axes(self)
        return {"D": self.hidden} if self.scaled else {}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The table, and what is done to a row that was read from it."""
        scale = (Pointwise(f"{at}.scale", "B T D"),) if self.scaled else ()
        if self.shared:
            return scale
        if self.width is None:
            return (Table(at, "V D"), *scale)
        return (Table(at, "V De"), Matmul(f"{at}.project", "B T De, De D -> B T D"), *scale)


@dataclass(frozen=True, slots=True)
class Positions(Part):
    """A table of absolute positions, added to the token's row. Its first `offset` rows stand for none.

    Not `trained`: its sines and cosines are stored with the weights, and stay as they are. Not `stored`: they are
    reckoned for each position, and no table is kept.
    """

    rows: Size
    hidden: Size
    offset: int = 0
    trained: bool = True
    stored: bool = True

    letters: ClassVar[dict[str, str]] = {"rows": "P", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"P": "rows of the position table", "D": "hidden size"}

    def sizes(self) -> dict[str, str]:
        """Field → axis; without a table it has no rows."""
        found = Part.sizes(self)
        return found if self.stored else {field: axis for field, axis in found.items() if field != "rows"}

    def axes(self) -> dict[str, Size]:
        """Their sizes."""
        return {letter: getattr(self, field) for field, letter in self.sizes().items()}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The table, where there is one, and the addition."""
        added = Pointwise(f"{at}.add", "B T D", sums=True)
        return (Table(at, "P D"), added) if self.stored else (added,)


@dataclass(frozen=True, slots=True)
class Segments(Part):
    """A learned table of the segments that a text has, added to the token's row."""

    rows: Size
    hidden: Size

    letters: ClassVar[dict[str, str]] = {"rows": "Vs", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"Vs": "segments of a text", "D": "hidden size"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The table and the addition."""
        return (Table(at, "Vs D"), Pointwise(f"{at}.add", "B T D", sums=True))


@dataclass(frozen=True, slots=True)
class Head(Part):
    """Logits over the vocabulary, for the O positions the workload asks for.

    Tied: the token table is the weight, so it is stored once and used by two lines. With `width` a product makes every
    token's vector that long first. `transform`: a product, this activation and a LayerNorm stand before the logits.
    `softcap` bounds the logits, `scale` multiplies what they are made of.
    """

    hidden: Size
    vocab: Size
    tied: bool = False
    bias: bool = False
    width: Size | None = None
    softcap: float | None = None
    transform: str | None = None
    eps: float = 1e-12
    scale: float | None = None

    letters: ClassVar[dict[str, str]] = {"hidden": "D", "vocab": "V", "width": "De"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "V": "vocabulary",
        "De": "width of the token table",
        "Dt": "result of the head's transform, as wide as D",
    }
    same: ClassVar[frozenset[str]] = frozenset(("Dt",))

    def axes(self) -> dict[str, Size]:
        """The sizes, and Dt = D where there is a transform."""
        return {**Part.axes(self), **({} if self.transform is None else {"Dt": self.hidden})}

    def lines(self, at: str) -> tuple[Line, ...]:
        """One product, or two."""
        return (*self._before(at), *self._logits(at, "embed" if self.tied else None))

    def _before(self, at: str) -> Iterator[Line]:
        if self.width is not None:
            yield Matmul(f"{at}.project", "B T D, D De -> B T De")
        if self.scale is not None:
            yield Pointwise(f"{at}.scale", "B O D")
        if self.transform is not None:
            yield Matmul(f"{at}.transform", "B O D, D Dt -> B O Dt", bias=True)
            yield Pointwise(f"{at}.act", "B O Dt")
            yield Pointwise(f"{at}.norm", "B O Dt", weight="Dt", bias="Dt")

    def again(self, at: str) -> tuple[Line, ...]:
        """The logits of another stream, under the path `at`, with the same weight."""
        return self._logits(at, "embed" if self.tied else "lm_head")

    def _logits(self, at: str, weight: str | None) -> tuple[Line, ...]:
        row = "De" if self.width is not None else "Dt" if self.transform is not None else "D"
        softcap = (Pointwise(f"{at}.softcap", "B O V"),) if self.softcap is not None else ()
        return (Matmul(at, f"B O {row}, {row} V -> B O V", weight=weight, bias=self.bias), *softcap)
