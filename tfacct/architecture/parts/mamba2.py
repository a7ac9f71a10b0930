"""Mamba-2: a short convolution, and a state per head that every token decays by one number.

Dao and Gu, "Transformers are SSMs" (arXiv 2405.21060), sections 6 (chunks) and 7; order and shapes of the matmuls:
transformers' Mamba2Mixer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import STATE_BITS, Mixer
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import CHUNK, Line, Matmul, Pointwise, State


@record(kw_only=True)
class Mamba2(Mixer):
    """Mamba-2 with a state of `head_dim` × `state` for each of `groups` · `group` heads, which every token decays and
    updates.

    The heads of a group share the two vectors of `state` numbers for writing and reading.

    All channels, including those vectors, first pass a depthwise convolution over the last `kernel` tokens. Several new
    tokens run in chunks of `chunk` tokens, padded to whole chunks: within a chunk, tokens interact as in attention, and
    the state is read and written once per chunk. A decode step processes its token alone. `norm`: RMSNorm per group,
    before or after the gate. `bias`: of the first projection, and of the last unless `out_bias` is set; `conv_bias`: of
    the convolution. `least_step`: least step size in chunks. `factors`: of a token's gate, input, both vectors and
    steps (transformers' FalconH1Mixer); no count depends on them.
    """

    hidden: Size
    groups: Size
    group: Size
    head_dim: Size
    state: Size
    kernel: Size
    bias: bool = False
    out_bias: bool | None = None
    conv_bias: bool = True
    norm: Literal["before", "after"] | None = "after"
    factors: tuple[float, ...] | None = None
    activation: str = "silu"
    eps: float = 1e-5
    least_step: float = 0.0
    chunk: Size = 256

    name: ClassVar[str] = "mamba"
    label: ClassVar[str] = "Mamba-2"
    axis_names: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "groups": "Km",
        "group": "Gm",
        "head_dim": "Hm",
        "state": "Ns",
        "kernel": "Kc",
        "chunk": CHUNK,
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Nm": "heads of Mamba-2, Km · Gm",
        "Km": "head groups of Mamba-2",
        "Gm": "heads per group of Mamba-2",
        "Hm": "head size of Mamba-2",
        "Ns": "state size of a channel",
        "Dm": "channels of the convolution, Km · Gm · Hm + 2 · Km · Ns",
        "Di": "outputs of the input projection, 2 · Km · Gm · Hm + 2 · Km · Ns + Km · Gm",
        "Kc": "convolution kernel size in tokens",
        "Pc": "tokens in a chunk",
        "Qc": "keys of a chunk, Pc",
    }

    made: ClassVar[dict[str, str]] = {
        "Nm": "Km · Gm",
        "Dm": "Km · Gm · Hm + 2 · Km · Ns",
        "Di": "2 · Km · Gm · Hm + 2 · Km · Ns + Km · Gm",
        "Qc": "Pc",
    }
    cases: ClassVar[frozenset[str]] = frozenset(("Km", "Gm", "Kc", "Ns"))
    tp_heads: ClassVar[str] = "groups"
    recurrence: ClassVar[str] = "the decays and state updates in the recurrence of Mamba-2"

    @property
    def heads(self) -> Size:
        """Number of heads, Nm = Km · Gm."""
        return self.groups * self.group

    @property
    def inner(self) -> Size:
        """Number of channels of all heads."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> Size:
        """Number of channels of the convolution: those of the heads and both vectors of each group."""
        return self.inner + 2 * self.groups * self.state

    def lines(self, at: str) -> Iterator[Line]:
        """Projection, convolution, recurrence in chunks and by one token, gated norm, output, and the cache: last
        tokens of the convolution and the state of each head."""
        norm = Pointwise(f"{at}.out_norm", "B T Nm Hm", weight="Nm Hm", kind="norm_rms")
        yield Matmul(f"{at}.in_proj", "B T D, D Di -> B T Di", bias=self.bias)
        if self.factors is not None:
            yield Pointwise(f"{at}.in_scale", "B T Di", kind="scale")
        yield Matmul(f"{at}.conv", "B T Dm Kc, Dm Kc -> B T Dm", bias=self.conv_bias)
        yield Pointwise(f"{at}.conv_act", "B T Dm", kind="activation", function=self.activation)
        yield Pointwise(f"{at}.step", "B T Km Gm", bias="Km Gm")
        yield Pointwise(f"{at}.decay", "B T Nm", weight="Nm")
        yield from self._in_chunks(at)
        yield Pointwise(f"{at}.recurrence", "B Tr Nm Hm Ns")
        yield Matmul(f"{at}.read_out", "B Tr Nm Hm Ns, B Tr Nm Ns -> B Tr Nm Hm")
        yield Pointwise(f"{at}.skip", "B T Nm Hm", weight="Nm")
        if self.norm == "before":
            yield norm
        yield Pointwise(f"{at}.gate", "B T Nm Hm", kind="gate")
        if self.norm == "after":
            yield norm
        out_bias = self.bias if self.out_bias is None else self.out_bias
        yield Matmul(f"{at}.out_proj", "B T Nm Hm, Nm Hm D -> B T D", bias=out_bias)
        yield State(f"{at}.conv_state", "B Dm Kc")
        yield State(f"{at}.scan_state", "B Nm Hm Ns", STATE_BITS)

    def _in_chunks(self, at: str) -> Iterator[Line]:
        """Interaction within each chunk; update of the states by each chunk, decay between chunks, and results from the
        states."""
        pairs = "B Nc Nm Pc Qc"
        yield Pointwise(f"{at}.pair_decay", pairs)
        yield Matmul(f"{at}.chunk_scores", f"B Nc Pc Nm Ns, B Nc Qc Nm Ns -> {pairs}")
        yield Pointwise(f"{at}.weighting", pairs, kind="weighting")
        yield Matmul(f"{at}.chunk_values", f"{pairs}, B Nc Qc Nm Hm -> B Nc Pc Nm Hm")
        yield Matmul(f"{at}.state_write", "B Nc Qc Nm Hm, B Nc Qc Nm Ns -> B Nc Nm Hm Ns")
        yield Pointwise(f"{at}.state_decay", "B Nc Nm Hm Ns")
        yield Matmul(f"{at}.state_read", "B Nc Pc Nm Ns, B Nc Nm Hm Ns -> B Nc Pc Nm Hm")
        yield Pointwise(f"{at}.read_add", "B Nc Pc Nm Hm", kind="sum")
