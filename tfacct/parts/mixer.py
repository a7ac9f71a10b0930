"""The mixer of a state-space model (Mamba): a short convolution, and a recurrence instead of attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.lines import Line, Matmul, Pointwise, State
from tfacct.notation import Size
from tfacct.parts.part import Part


@dataclass(frozen=True, slots=True)
class Mixer(Part):
    """A selective state space: each of `inner` channels has `state` numbers, which every token decays and adds to.

    In front of it a convolution gives each channel a weighted sum of its last `kernel` tokens. How long a token's step
    is, is read off `rank` numbers of it; what it adds to the state, and what is read from it, off `state` each. A gate
    of `inner` multiplies the result. `bias`: of the products in front and behind; `conv_bias`: of the convolution.
    """

    hidden: Size
    inner: Size
    state: Size
    kernel: Size
    rank: Size
    bias: bool = False
    conv_bias: bool = True
    activation: str = "silu"

    letters: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "inner": "Dx",
        "state": "Ns",
        "kernel": "Kc",
        "rank": "Rt",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Dx": "channels of a mixer",
        "Dz": "channels and their gates, 2 · Dx",
        "Ns": "numbers in the state of a channel",
        "Kc": "tokens that a convolution sees",
        "Rt": "numbers that a token's step is read off",
        "Rx": "what is read off a token, Rt + 2 · Ns",
    }

    def axes(self) -> dict[str, Size]:
        """The sizes; Dz = 2 · Dx and Rx = Rt + 2 · Ns."""
        return {**Part.axes(self), "Dz": 2 * self.inner, "Rx": self.rank + 2 * self.state}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The projections, the convolution, the recurrence as pointwise work, what is read from the states (both sides
        activations), and what is kept: the convolution's last tokens, and the states."""
        return (
            Matmul(f"{at}.in_proj", "B T D, D Dz -> B T Dz", bias=self.bias),
            Matmul(f"{at}.conv", "B T Dx Kc, Dx Kc -> B T Dx", bias=self.conv_bias),
            Pointwise(f"{at}.conv_act", "B T Dx"),
            Matmul(f"{at}.x_proj", "B T Dx, Dx Rx -> B T Rx"),
            Matmul(f"{at}.dt_proj", "B T Rt, Rt Dx -> B T Dx", bias=True),
            Pointwise(f"{at}.dt_softplus", "B T Dx"),
            Pointwise(f"{at}.recurrence", "B T Dx Ns", weight="Dx Ns"),
            Matmul(f"{at}.read_out", "B T Dx Ns, B T Ns -> B T Dx"),
            Pointwise(f"{at}.skip", "B T Dx", weight="Dx"),
            Pointwise(f"{at}.gate", "B T Dx"),
            Matmul(f"{at}.out_proj", "B T Dx, Dx D -> B T D", bias=self.bias),
            State(f"{at}.conv_state", "B Dx Kc"),
            State(f"{at}.scan_state", "B Dx Ns"),
        )
