"""RWKV-4: a weighted mean of all tokens so far in place of attention, and a network that sees the token before.

Peng et al., "RWKV: Reinventing RNNs for the Transformer Era" (arXiv 2305.13048), section 3 and appendix D; the order
and the shapes of the products: transformers' RwkvSelfAttention and RwkvFeedForward.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.part import Mixer
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State

STATE_BITS = 32
"""Width of the sums that are kept: the class computes and keeps them in fp32."""


@record(kw_only=True)
class TimeMix(Mixer):
    """Each of `inner` channels has a mean of the values of all tokens so far, weighted by their keys and less the older
    they are. It is kept as two sums, and the exponent that both are scaled by.

    Keys, values and the gate of the result are computed from a token and the one before, each from a mixture of its
    own.
    """

    hidden: Size
    inner: Size

    name: ClassVar[str] = "time_mix"
    hf_loop: ClassVar[str] = "the tokens in Python: 4,096 of them take about a minute"
    label: ClassVar[str] = "RWKV's mixing of tokens"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "inner": "Dw"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Dw": "channels of RWKV's recurrence",
        "Sw": "numbers that one of these channels keeps: two sums and their exponent",
    }
    made: ClassVar[dict[str, str]] = {"Sw": "3"}
    recurs: ClassVar[bool] = True
    recurrence: ClassVar[str] = "the recurrence of RWKV"

    def lines(self, at: str) -> tuple[Line, ...]:
        """Mixtures, projections, the recurrence and the means read from it (pointwise work), the gate, the output, and
        what is kept: the last token, and each channel's sums."""
        return (
            *(Pointwise(f"{at}.{name}_mix", "B T D", weight="D") for name in "kvr"),
            *(Matmul(f"{at}.{name}_proj", "B T D, D Dw -> B T Dw") for name in "kvr"),
            Pointwise(f"{at}.recurrence", "B T Dw Sw", weight="Dw"),
            Pointwise(f"{at}.mean", "B T Dw", weight="Dw"),
            Pointwise(f"{at}.gate", "B T Dw", kind="gate"),
            Matmul(f"{at}.o_proj", "B T Dw, Dw D -> B T D"),
            State(f"{at}.shift_state", "B D"),
            State(f"{at}.sum_state", "B Dw Sw", STATE_BITS),
        )


@record(kw_only=True)
class ChannelMix(Mixer):
    """Network of two matrices, with a squared ReLU between them, whose result is gated. Both the network and the gate
    are computed from a token and the one before, each from a mixture of its own."""

    hidden: Size
    width: Size

    name: ClassVar[str] = "channel_mix"
    label: ClassVar[str] = "RWKV's mixing of channels"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "width": "F"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "F": "feed-forward width",
        "Do": "another vector as wide as D",
    }
    made: ClassVar[dict[str, str]] = {"Do": "D"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Mixtures, the network, the gate, and the last token, which is kept."""
        return (
            *(Pointwise(f"{at}.{name}_mix", "B T D", weight="D") for name in "kr"),
            Matmul(f"{at}.up_proj", "B T D, D F -> B T F"),
            Pointwise(f"{at}.act", "B T F", kind="activation"),
            Matmul(f"{at}.down_proj", "B T F, F D -> B T D"),
            Matmul(f"{at}.r_proj", "B T D, D Do -> B T Do"),
            Pointwise(f"{at}.gate", "B T D", kind="gate"),
            State(f"{at}.shift_state", "B D"),
        )
