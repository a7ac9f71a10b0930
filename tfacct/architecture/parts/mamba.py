"""Mamba: a short convolution and a recurrence instead of attention.

Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (arXiv 2312.00752), sections 3.2
(algorithm 2) and 3.4; order and shapes of the matmuls: transformers' MambaMixer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import STATE_BITS, Mixer
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State


@record(kw_only=True)
class Mamba(Mixer):
    """Selective state space: a state of `state` numbers for each of `inner` channels, which every token decays and
    updates.

    A depthwise convolution over the last `kernel` tokens comes first. Each token has a step size, a projection of
    `rank` numbers, and two vectors of `state` numbers for writing and reading the state (Δ, B and C in the paper). A
    gate of `inner`, a SiLU for any `activation` of the convolution, multiplies the result.
    `bias`: of the first and last projection; `conv_bias`: of the convolution.
    `norms`: RMSNorms of the step's input and of both vectors, with or without scales (transformers' JambaMambaMixer and
    FalconMambaMixer).
    """

    hidden: Size
    inner: Size
    state: Size
    kernel: Size
    rank: Size
    bias: bool = False
    conv_bias: bool = True
    activation: str = "silu"
    norms: Literal["none", "plain", "scaled"] = "none"
    eps: float = 1e-6

    name: ClassVar[str] = "mamba"
    hf_loop: ClassVar[str] = "the tokens in Python: 4,096 tokens take about a minute"
    label: ClassVar[str] = "Mamba"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "inner": "Dx", "state": "Ns", "kernel": "Kc", "rank": "Rt"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Dx": "channels of Mamba",
        "Dz": "channels and their gates, 2 · Dx",
        "Ns": "state size of a channel",
        "Kc": "convolution kernel size in tokens",
        "Rt": "rank of the step-size projection",
        "Rx": "outputs of the token projection, Rt + 2 · Ns",
    }

    made: ClassVar[dict[str, str]] = {"Dz": "2 · Dx", "Rx": "Rt + 2 · Ns"}
    cases: ClassVar[frozenset[str]] = frozenset(("Kc", "Ns", "Rt"))
    recurs: ClassVar[bool] = True
    recurrence: ClassVar[str] = "the recurrence of Mamba"

    def lines(self, at: str) -> Iterator[Line]:
        """Projections, convolution, recurrence (pointwise), readout of the states (both operands are activations), and
        the cache: last tokens of the convolution and a state per channel."""
        yield Matmul(f"{at}.in_proj", "B T D, D Dz -> B T Dz", bias=self.bias)
        yield Matmul(f"{at}.conv", "B T Dx Kc, Dx Kc -> B T Dx", bias=self.conv_bias)
        yield Pointwise(f"{at}.conv_act", "B T Dx", kind="activation", function=self.activation)
        yield Matmul(f"{at}.x_proj", "B T Dx, Dx Rx -> B T Rx")
        yield from self._norms(at)
        yield Matmul(f"{at}.dt_proj", "B T Rt, Rt Dx -> B T Dx", bias=True)
        yield Pointwise(f"{at}.dt_softplus", "B T Dx")
        yield Pointwise(f"{at}.recurrence", "B T Dx Ns", weight="Dx Ns")
        yield Matmul(f"{at}.read_out", "B T Dx Ns, B T Ns -> B T Dx")
        yield Pointwise(f"{at}.skip", "B T Dx", weight="Dx")
        yield Pointwise(f"{at}.gate", "B T Dx", kind="gate")
        yield Matmul(f"{at}.out_proj", "B T Dx, Dx D -> B T D", bias=self.bias)
        yield State(f"{at}.conv_state", "B Dx Kc")
        yield State(f"{at}.scan_state", "B Dx Ns", STATE_BITS)

    def _norms(self, at: str) -> Iterator[Line]:
        if self.norms != "none":
            for name, axis in (("dt_norm", "Rt"), ("b_norm", "Ns"), ("c_norm", "Ns")):
                weight = axis if self.norms == "scaled" else ""
                yield Pointwise(f"{at}.{name}", f"B T {axis}", weight=weight, kind="norm_rms")
