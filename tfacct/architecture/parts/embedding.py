"""Ends of a model: token, position and segment tables in front, the head behind.

Tied tables: Press and Wolf (arXiv 1608.05859). Sines and cosines for positions: Vaswani et al. (1706.03762), section
3.5. Segments, and a head with a transform: transformers' BertEmbeddings and BertLMPredictionHead. Tables narrower than
the model: transformers' OPTDecoder (`word_embed_proj_dim`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table


@record(kw_only=True)
class Embedding(Part):
    """Token table: read by row, never multiplied. `scaled`: each row is multiplied by `factor`, or
    by √hidden if there is none.

    `width`: length of its rows if it is not `hidden`; a product then projects them. `shared`: the rows are those of the
    decoder's table, and stored there.
    """

    vocab: Size
    hidden: Size
    scaled: bool = False
    factor: float | None = None
    width: Size | None = None
    shared: bool = False

    name: ClassVar[str] = "embed"
    letters: ClassVar[dict[str, str]] = {"vocab": "V", "hidden": "D", "width": "De"}
    legend: ClassVar[dict[str, str]] = {"V": "vocabulary", "D": "hidden size", "De": "width of the token table"}

    def axes(self) -> dict[str, Size]:
        """Sizes of the part's axes; a shared table has only that of its rows, if they are scaled."""
        if not self.shared:
            return Part.axes(self)
        return {"D": self.hidden} if self.scaled else {}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Table, and the work on the rows read from it."""
        scale = (Pointwise(f"{at}.scale", "B T D"),) if self.scaled else ()
        if self.shared:
            return scale
        if self.width is None:
            return (Table(at, "V D"), *scale)
        return (Table(at, "V De"), Matmul(f"{at}.project", "B T De, De D -> B T D"), *scale)


@record(kw_only=True)
class Positions(Part):
    """Absolute positions, added to the token's row. The first `offset` rows of the table stand for no position.

    If not `trained`, its sines and cosines are stored with the weights but never change. If not `stored`, they are
    computed for each position, and there is no table.
    """

    rows: Size
    hidden: Size
    offset: int = 0
    trained: bool = True
    stored: bool = True

    name: ClassVar[str] = "pos_embed"
    letters: ClassVar[dict[str, str]] = {"rows": "P", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"P": "rows of the position table", "D": "hidden size"}

    def sizes(self) -> dict[str, str]:
        """Return field → axis; without a table there are no rows."""
        found = Part.sizes(self)
        return found if self.stored else {field: axis for field, axis in found.items() if field != "rows"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Table, where there is one, and the addition."""
        added = Pointwise(f"{at}.add", "B T D", sums=True)
        return (Table(at, "P D"), added) if self.stored else (added,)


@record(kw_only=True)
class Segments(Part):
    """Learned table of a text's segments, added to the token's row."""

    rows: Size
    hidden: Size

    name: ClassVar[str] = "type_embed"
    letters: ClassVar[dict[str, str]] = {"rows": "Vs", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"Vs": "segments of a text", "D": "hidden size"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Table and addition."""
        return (Table(at, "Vs D"), Pointwise(f"{at}.add", "B T D", sums=True))


@record(kw_only=True)
class Head(Part):
    """Logits over the vocabulary, for the O positions that the workload asks for.

    `tied`: the token table is the weight, stored once and used by two lines. `width`: length of the table's rows if it
    is not `hidden`; a product then projects every token's vector to it first. `transform`: a product, this activation
    and a LayerNorm stand before the logits. `logit_scale` multiplies the logits, `softcap` bounds them, `scale`
    multiplies the vectors that they are computed from.
    """

    hidden: Size
    vocab: Size
    tied: bool = False
    bias: bool = False
    width: Size | None = None
    logit_scale: float | None = None
    softcap: float | None = None
    transform: str | None = None
    eps: float = 1e-12
    scale: float | None = None

    name: ClassVar[str] = "lm_head"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "vocab": "V", "width": "De"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "V": "vocabulary",
        "De": "width of the token table",
        "Dt": "result of the head's transform, as wide as D",
    }
    made: ClassVar[dict[str, str]] = {"Dt": "D"}

    def derived(self) -> dict[str, str]:
        """Dt where there is a transform."""
        return {} if self.transform is None else self.made

    def lines(self, at: str) -> tuple[Line, ...]:
        """Product that gives the logits, and the work before and behind it."""
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
        """Lines that give the logits of another stream, under the path `at`, with the same weight."""
        return self._logits(at, "embed" if self.tied else "lm_head")

    def _logits(self, at: str, weight: str | None) -> tuple[Line, ...]:
        row = "De" if self.width is not None else "Dt" if self.transform is not None else "D"
        behind = (("logit_scale", self.logit_scale), ("softcap", self.softcap))
        own = (Pointwise(f"{at}.{name}", "B O V") for name, value in behind if value is not None)
        return (Matmul(at, f"B O {row}, {row} V -> B O V", weight=weight, bias=self.bias), *own)
