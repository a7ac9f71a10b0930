"""Several streams, of which a block reads one and corrects all: AltUp, and the low-rank product beside attention.

Baykal et al., "Alternating Updates for Efficient Transformers" (arXiv 2301.13310); Menghani et al., "LAuReL"
(2411.07501). The order and the shapes of the products: transformers' Gemma3nTextModel, Gemma3nTextAltUp and
Gemma3nTextLaurelBlock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.feed_forward import FeedForward
from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.residual import Residual
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Unused

STREAMS = 4
"""Streams of a model with AltUp."""
OTHERS = ("second", "third", "fourth")
"""Those beside the one that blocks read, the first, by their names in paths."""
OTHER, EACH = "Xo", "Xs"
MADE = {OTHER: str(STREAMS - 1), EACH: str(STREAMS), "Xt": str(STREAMS), "Xu": str(STREAMS)}
LEGEND = {
    "D": "hidden size",
    OTHER: f"streams beside the one that a block reads, {STREAMS - 1}",
    EACH: f"streams, {STREAMS}",
    "Xt": f"streams that another is predicted from, {STREAMS}",
    "Xu": f"streams that are predicted, {STREAMS}",
}


@record(kw_only=True)
class AltUp(Part):
    """In front of a block, each stream is predicted from all, by coefficients that are made of the first one. Behind
    it, all are corrected by what the block changed in the first, each by a coefficient made of the block's result.

    `scaled`: a vector multiplies the first stream before that gates the layer's own rows; else it is stored only.
    """

    hidden: Size
    scaled: bool
    eps: float = 1e-6

    name: ClassVar[str] = "altup"
    label: ClassVar[str] = "AltUp"
    letters: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {letter: said for letter, said in LEGEND.items() if letter != OTHER}
    made: ClassVar[dict[str, str]] = {letter: count for letter, count in MADE.items() if letter != OTHER}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Coefficients and predictions, then coefficients and corrections."""
        scale = Pointwise(f"{at}.out_scale", "B T D", weight="D")
        return (
            *self._routed(at, ""),
            Matmul(f"{at}.predict_coefs", "B T Xs, Xs Xt Xu -> B T Xt Xu"),
            Matmul(f"{at}.predict", "B T D Xt, B T Xt Xu -> B T D Xu"),
            Pointwise(f"{at}.predict_add", "B T D Xs", kind="sum"),
            *self._routed(at, "correct_"),
            Matmul(f"{at}.correct_coefs", "B T Xs, Xs Xt -> B T Xt"),
            Pointwise(f"{at}.innovation", "B T D", kind="sum"),
            Pointwise(f"{at}.correct", "B T D Xs"),
            Pointwise(f"{at}.correct_add", "B T D Xs", kind="sum"),
            scale if self.scaled else Unused(scale),
        )

    def _routed(self, at: str, which: str) -> Iterator[Line]:
        """What coefficients are made of: both times by the same norm and the same matrix."""
        owner = f"{at}.router"
        yield Pointwise(
            f"{at}.{which}router_norm", "B T D", weight="D", module=f"{owner}_norm" if which else None, kind="norm_rms"
        )
        yield Pointwise(f"{at}.{which}router_scale", "B T D", kind="scale")
        yield Matmul(f"{at}.{which}router", "B T D, D Xs -> B T Xs", weight=owner if which else None)
        yield Pointwise(f"{at}.{which}tanh", "B T Xs")


@record(kw_only=True)
class SparseFeedForward(FeedForward):
    """Gated network. This share of the gate is set to 0, which saves no work (Gemma3nTextMLP)."""

    gated: bool = True
    sparsity: float

    def lines(self, at: str) -> tuple[Line, ...]:
        """Projections and activation, with the cut of the gate."""
        gate, *rest = FeedForward.lines(self, at)
        return (gate, Pointwise(f"{at}.sparsity", "B T F"), *rest)


@record(kw_only=True)
class AltUpResidual(Residual):
    """Addition of a sublayer's result to all streams but the first."""

    legend: ClassVar[dict[str, str]] = {name: LEGEND[name] for name in ("D", OTHER)}
    made: ClassVar[dict[str, str]] = {OTHER: MADE[OTHER]}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The addition."""
        return (Pointwise(at, "B T Xo D", kind="residual"),)


@record(kw_only=True)
class AltUpExpand(Part):
    """Further streams made of the tokens' vectors by a matrix for each, of the same length as the first one."""

    hidden: Size

    name: ClassVar[str] = "streams"
    letters: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {
        "D": LEGEND["D"],
        OTHER: LEGEND[OTHER],
        "Do": "another vector as wide as D",
    }
    made: ClassVar[dict[str, str]] = {OTHER: MADE[OTHER], "Do": "D"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """A product for each stream but the first, and their lengths."""
        return (
            *(Matmul(f"{at}.{name}", "B T D, D Do -> B T Do") for name in OTHERS),
            Pointwise(f"{at}.rescale", "B T Xo D", kind="scale"),
        )


@record(kw_only=True)
class AltUpMerge(AltUpExpand):
    """Mean of all streams, the others each by way of a matrix and of the same length as the first one."""

    name: ClassVar[str] = "merged"

    def lines(self, at: str) -> tuple[Line, ...]:
        """The same products and lengths, and the mean."""
        return *AltUpExpand.lines(self, at), Pointwise(f"{at}.mean", "B T D")


@record(kw_only=True)
class Laurel(Part):
    """A product of low rank, normed, of what attention reads, and that itself: added to the stream beside attention's
    result."""

    hidden: Size
    rank: Size
    eps: float = 1e-6

    name: ClassVar[str] = "laurel"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "rank": "Ru"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Ru": "rank of the product beside attention"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Two products, a norm and a sum."""
        return (
            Matmul(f"{at}.down_proj", "B T D, D Ru -> B T Ru"),
            Matmul(f"{at}.up_proj", "B T Ru, Ru D -> B T D"),
            Pointwise(f"{at}.norm", "B T D", weight="D", kind="norm_rms"),
            Pointwise(f"{at}.add", "B T D", kind="sum"),
        )
