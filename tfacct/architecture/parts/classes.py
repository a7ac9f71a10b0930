"""Poolers and classification heads.

As in transformers' BertPooler, CLIPVisionModelWithProjection and ForSequenceClassification; with a projection of every
position first, as in ElectraDiscriminatorPredictions and ModernBertForTokenClassification.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise


@record(kw_only=True)
class Pooler(Part):
    """One vector per sequence: a projection and an activation.

    `reads`: the vector at the `first` position or at the text's `end`, the `mean` of all, or `each` position.
    `norm_eps`: ε of a LayerNorm after it, with a shift if `norm_shift`.
    """

    hidden: Size
    reads: Literal["first", "mean", "each", "end"] = "first"
    activation: str = "tanh"
    bias: bool = True
    norm_eps: float | None = None
    norm_shift: bool = True

    name: ClassVar[str] = "pooler"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Dp": "output of the pooler, as wide as D"}
    made: ClassVar[dict[str, str]] = {"Dp": "D"}

    def lines(self, at: str) -> Iterator[Line]:
        """Projection of one vector per sequence or position, activation, and norm."""
        at_each = "B O" if self.reads == "each" else "B"
        yield Matmul(at, f"{at_each} D, D Dp -> {at_each} Dp", bias=self.bias)
        yield Pointwise(f"{at}.act", f"{at_each} Dp", kind="activation", function=self.activation)
        if self.norm_eps is not None:
            shift = "Dp" if self.norm_shift else ""
            yield Pointwise(f"{at}.norm", f"{at_each} Dp", weight="Dp", bias=shift, kind="norm_layer")


@record(kw_only=True)
class TokenPooler(Part):
    """One vector per sequence, or per position, with an optional norm and projection.

    `reads`: the `first` or `last` position, the `end` of the text, the mean of the first two positions (`both`), the
    `mean` of all but the first, the `average` of all, or `each` position. `norm_eps`: ε of a LayerNorm. `width`: width
    of a projection. `then`: width of a projection without bias of the first position, if each is projected.
    """

    hidden: Size
    reads: Literal["first", "last", "end", "both", "mean", "average", "each"] = "first"
    norm_eps: float | None = None
    width: Size | None = None
    bias: bool = False
    then: Size | None = None

    name: ClassVar[str] = "pooler"
    label: ClassVar[str] = "a token pooler"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "width": "Dv", "then": "Dvf"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Dv": "width of the pooled vector",
        "Dvf": "width of the vector pooled from the first position",
    }

    def axes(self) -> dict[str, Size]:
        """Sizes of the norm and projection; empty without either."""
        return {} if self.norm_eps is None and self.width is None else Part.axes(self)

    def lines(self, at: str) -> Iterator[Line]:
        """Norm and projections, if any."""
        each = "B T" if self.reads == "each" else "B"  # independent of the logits requested
        if self.norm_eps is not None:
            yield Pointwise(f"{at}.norm", f"{each} D", weight="D", bias="D", kind="norm_layer")
        if self.width is not None:
            yield Matmul(f"{at}.project", f"{each} D, D Dv -> {each} Dv", bias=self.bias)
        if self.then is not None:
            yield Matmul(f"{at}.then", "B Dv, Dv Dvf -> B Dvf")


@record(kw_only=True)
class Classes(Part):
    """Class scores for the O positions of the workload or, if `pooled`, per sequence: from the pooler's vector, or from
    the first position without a pooler.

    With one class, it is a reward model: one number for each position or sequence. `taught`: a second projection scores
    the second position, and the result is the mean (transformers' DeiTForImageClassificationWithTeacher).
    """

    hidden: Size
    classes: Size
    bias: bool
    pooled: bool
    taught: bool

    name: ClassVar[str] = "classifier"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "classes": "Y"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Y": "number of classes"}
    cases: ClassVar[frozenset[str]] = frozenset("Y")

    def lines(self, at: str) -> Iterator[Line]:
        """Projection to the classes, or two and their mean."""
        spec = "B D, D Y -> B Y" if self.pooled else "B O D, D Y -> B O Y"
        yield Matmul(at, spec, bias=self.bias)
        if self.taught:
            yield Matmul(f"{at}.taught", spec, bias=self.bias)
            yield Pointwise(f"{at}.mean", "B Y", kind="sum")
