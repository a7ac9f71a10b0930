"""Gated short convolution in place of attention: each channel's last tokens, between two gates made of the token; and
a convolution of all channels beside the first block.

Liquid AI, "LFM2 Technical Report" (arXiv 2511.23404), section 2; the order and the shapes of the products:
transformers' Lfm2ShortConv. Beside the first block: He et al., "DeBERTa" (2006.03654), version 2, and transformers'
DebertaV2Encoder.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.part import Mixer, Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import BESIDE, Line, Matmul, Pointwise, State


@record(kw_only=True)
class ShortConvolution(Mixer):
    """One product gives each token a value and two gates, as wide as the stream. The value times the first gate goes
    through a depthwise convolution over the last `kernel` tokens; its result times the second gate through a product.

    `bias`: both products and the convolution have biases.
    """

    hidden: Size
    kernel: Size
    bias: bool = False

    name: ClassVar[str] = "conv"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "kernel": "Kc"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Dg": "channels and their two gates, 3 · D",
        "Do": "another vector as wide as D",
        "Kc": "tokens that the convolution sees",
    }
    made: ClassVar[dict[str, str]] = {"Dg": "3 · D", "Do": "D"}
    cases: ClassVar[frozenset[str]] = frozenset(("Kc",))
    unfused: ClassVar[str] = "The short convolution reads a window for each token: fused kernels do not."

    def lines(self, at: str) -> tuple[Line, ...]:
        """Projections, gates, the convolution, and its last tokens, which are kept."""
        return (
            Matmul(f"{at}.in_proj", "B T D, D Dg -> B T Dg", bias=self.bias),
            Pointwise(f"{at}.entry_gate", "B T D", kind="gate"),
            Matmul(f"{at}.conv", "B T D Kc, D Kc -> B T D", bias=self.bias),
            Pointwise(f"{at}.gate", "B T D", kind="gate"),
            Matmul(f"{at}.out_proj", "B T D, D Do -> B T Do", bias=self.bias),
            State(f"{at}.conv_state", "B D Kc"),
        )


@record(kw_only=True)
class FirstConvolution(Part):
    """Convolution of what the first block reads, of `kernel` tokens with the one in question in their middle, added
    behind an activation to what that block gives, and a LayerNorm."""

    hidden: Size
    kernel: Size
    activation: str
    eps: float = 1e-7

    name: ClassVar[str] = "first_conv"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "kernel": BESIDE}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        BESIDE: "tokens around one that the convolution sees",
        "Dn": "numbers of a token that the convolution sees, as many as D",
    }
    made: ClassVar[dict[str, str]] = {"Dn": "D"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The product, unfolded, its activation, the addition and the norm."""
        return (
            Matmul(at, f"B T Dn {BESIDE}, Dn {BESIDE} D -> B T D", bias=True),
            Pointwise(f"{at}.act", "B T D", kind="activation", function=self.activation),
            Pointwise(f"{at}.add", "B T D", kind="sum"),
            Pointwise(f"{at}.norm", "B T D", weight="D", bias="D", kind="norm_layer"),
        )
