"""Heads of a model that predicts no tokens: a pooler, and classification.

As in transformers' BertPooler and CLIPVisionModelWithProjection, and in its classes ForSequenceClassification; with a
product of every position in front, as in its ElectraDiscriminatorPredictions and ModernBertForTokenClassification.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise


@record(kw_only=True)
class Pooler(Part):
    """One vector for each sequence: a product of the vector at its `first` position, of the `mean` of all, or of that
    at the text's `end`, and an activation. Or one for `each` position. `norm_eps`: a LayerNorm behind it, with a shift
    where `norm_shift` is on.
    """

    hidden: Size
    reads: Literal["first", "mean", "each", "end"] = "first"
    activation: str = "tanh"
    bias: bool = True
    norm_eps: float | None = None
    norm_shift: bool = True

    name: ClassVar[str] = "pooler"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Dp": "result of the pooler, as wide as D"}
    made: ClassVar[dict[str, str]] = {"Dp": "D"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Product, for one vector of each sequence or for each position, its activation, and its norm."""
        at_each = "B O" if self.reads == "each" else "B"
        shift = "Dp" if self.norm_shift else ""
        norm = Pointwise(f"{at}.norm", f"{at_each} Dp", weight="Dp", bias=shift, kind="norm_layer")
        return (
            Matmul(at, f"{at_each} D, D Dp -> {at_each} Dp", bias=self.bias),
            Pointwise(f"{at}.act", f"{at_each} Dp", kind="activation", function=self.activation),
            *(() if self.norm_eps is None else (norm,)),
        )


@record(kw_only=True)
class TokenPooler(Part):
    """Vector of one position of each sequence, `first`, `last` or that of the text's `end`, or the mean of the first
    two (`both`), or the `mean` of all behind the first, or the `average` of all: behind a LayerNorm, with `norm_eps`,
    and behind a product that makes it `width` long, with `width`. Without either it is only read. Or the vector of
    `each` position: then a product without a bias may make of the first one's another that is `then` long.
    """

    hidden: Size
    reads: Literal["first", "last", "end", "both", "mean", "average", "each"] = "first"
    norm_eps: float | None = None
    width: Size | None = None
    bias: bool = False
    then: Size | None = None

    name: ClassVar[str] = "pooler"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "width": "Dv", "then": "Dvf"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Dv": "width of the vector of a sequence or position",
        "Dvf": "width of the vector of a sequence that is made of its first position's",
    }

    def axes(self) -> dict[str, Size]:
        """Sizes of what a norm or a product has: none where it only reads."""
        return {} if self.norm_eps is None and self.width is None else Part.axes(self)

    def lines(self, at: str) -> tuple[Line, ...]:
        """Norm and product, where they are."""
        each = "B T" if self.reads == "each" else "B"  # whatever logits are asked for: it has none
        norm = Pointwise(f"{at}.norm", f"{each} D", weight="D", bias="D", kind="norm_layer")
        product = Matmul(f"{at}.project", f"{each} D, D Dv -> {each} Dv", bias=self.bias)
        then = Matmul(f"{at}.then", "B Dv, Dv Dvf -> B Dvf")
        products = (*(() if self.width is None else (product,)), *(() if self.then is None else (then,)))
        return (*(() if self.norm_eps is None else (norm,)), *products)


@record(kw_only=True)
class Classes(Part):
    """Scores of classes for the O positions that the workload asks for, or, `pooled`, for each sequence: of its
    pooler's vector, or where there is none of its first position's.

    With one class it is a reward model: one number for each position or sequence. If `taught`, a second product scores
    the second position, and the result is the mean of both (transformers' DeiTForImageClassificationWithTeacher).
    """

    hidden: Size
    classes: Size
    bias: bool = False
    pooled: bool = False
    taught: bool = False

    name: ClassVar[str] = "classifier"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "classes": "Y"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Y": "classes that are scored"}
    cases: ClassVar[frozenset[str]] = frozenset("Y")

    def lines(self, at: str) -> tuple[Line, ...]:
        """Product of hidden states with the classes' matrix, or two and their mean."""
        spec = "B D, D Y -> B Y" if self.pooled else "B O D, D Y -> B O Y"
        product = Matmul(at, spec, bias=self.bias)
        if not self.taught:
            return (product,)
        return (product, Matmul(f"{at}.taught", spec, bias=self.bias), Pointwise(f"{at}.mean", "B Y", kind="sum"))
