"""Gated short convolution instead of attention: over the last tokens of each channel, between two gates computed from
the token.

Liquid AI, "LFM2 Technical Report" (arXiv 2511.23404), section 2; order and shapes of the matmuls: transformers'
Lfm2ShortConv.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.part import Mixer
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State


@record(kw_only=True)
class ShortConvolution(Mixer):
    """A gated depthwise convolution over the last `kernel` tokens.

    A projection gives a value and two gates of hidden size. Value times first gate goes through the convolution; its
    result times the second gate goes through an output projection.

    `bias`: both projections and the convolution have biases.
    """

    hidden: Size
    kernel: Size
    bias: bool = False

    name: ClassVar[str] = "conv"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "kernel": "Kc"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Dg": "channels and their two gates, 3 · D",
        "Do": "output width of a square matrix (= D)",
        "Kc": "convolution kernel size in tokens",
    }
    made: ClassVar[dict[str, str]] = {"Dg": "3 · D", "Do": "D"}
    cases: ClassVar[frozenset[str]] = frozenset(("Kc",))

    def lines(self, at: str) -> Iterator[Line]:
        """Projections, gates, convolution, and the cached last tokens."""
        yield Matmul(f"{at}.in_proj", "B T D, D Dg -> B T Dg", bias=self.bias)
        yield Pointwise(f"{at}.entry_gate", "B T D", kind="gate")
        yield Matmul(f"{at}.conv", "B T D Kc, D Kc -> B T D", bias=self.bias)
        yield Pointwise(f"{at}.gate", "B T D", kind="gate")
        yield Matmul(f"{at}.out_proj", "B T D, D Do -> B T Do", bias=self.bias)
        yield State(f"{at}.conv_state", "B D Kc")
