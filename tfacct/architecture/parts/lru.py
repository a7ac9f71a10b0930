"""RG-LRU: no attention; a short convolution, and one number for each channel that every token decays and adds to.

De et al., "Griffin" (arXiv 2402.19427), section 2.4; the order and the shapes of the products: transformers'
RecurrentGemmaRecurrentBlock.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.part import STATE_BITS, Mixer
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State


@record(kw_only=True)
class GatedRecurrence(Mixer):
    """Two products widen a token to `blocks` · `block_dim` channels. One result is activated and gates what the other
    is made into: a depthwise convolution over a token and the `before` tokens in front of it, then a recurrence.

    Each channel keeps one number. A token decays it, and adds its own, gated, to it; both gates are made of the
    channels of its block, by a matrix for each block. All products and the convolution have biases.
    """

    hidden: Size
    blocks: Size
    block_dim: Size
    before: Size
    activation: str = "gelu_pytorch_tanh"

    name: ClassVar[str] = "lru"
    hf_loop: ClassVar[str] = "the tokens in Python: 4,096 of them take about a minute"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "blocks": "Nb", "block_dim": "Hb", "before": "Kp"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Dr": "channels of the recurrence, Nb · Hb",
        "Nb": "blocks of channels that share their gates",
        "Hb": "channels of a block",
        "Ob": "gates of a block, Hb",
        "Kp": "tokens that the convolution sees before a token's own",
        "Kc": "tokens that the convolution sees",
    }
    made: ClassVar[dict[str, str]] = {"Dr": "Nb · Hb", "Ob": "Hb", "Kc": "Kp + 1"}
    cases: ClassVar[frozenset[str]] = frozenset(("Nb", "Kp"))
    recurs: ClassVar[bool] = True
    recurrence: ClassVar[str] = "the recurrence of RG-LRU"
    unfused: ClassVar[str] = "The convolution reads a window for each token: fused kernels do not."

    @property
    def width(self) -> Size:
        """Number of channels, Dr = Nb · Hb."""
        return self.blocks * self.block_dim

    def lines(self, at: str) -> tuple[Line, ...]:
        """Both projections, the convolution, both gates, the recurrence (pointwise work), the output, and what is kept:
        the convolution's last tokens, and one number for each channel."""
        gates = "B T Nb Hb, Nb Hb Ob -> B T Nb Ob"
        return (
            Matmul(f"{at}.y_proj", "B T D, D Dr -> B T Dr", bias=True),
            Pointwise(f"{at}.act", "B T Dr", kind="activation", function=self.activation),
            Matmul(f"{at}.x_proj", "B T D, D Dr -> B T Dr", bias=True),
            Matmul(f"{at}.conv", "B T Dr Kc, Dr Kc -> B T Dr", bias=True),
            Matmul(f"{at}.input_gate", gates, bias=True),
            Matmul(f"{at}.decay_gate", gates, bias=True),
            Pointwise(f"{at}.decay", "B T Dr", weight="Dr"),
            Pointwise(f"{at}.input", "B T Dr"),
            Pointwise(f"{at}.recurrence", "B T Dr"),
            Pointwise(f"{at}.gate", "B T Dr", kind="gate"),
            Matmul(f"{at}.out_proj", "B T Dr, Dr D -> B T D", bias=True),
            State(f"{at}.conv_state", "B Dr Kp"),
            State(f"{at}.lru_state", "B Dr", STATE_BITS),
        )
