"""Gated DeltaNet: a short convolution, and a state matrix per head that every token decays, updates and reads.

Yang et al., "Gated Delta Networks" (arXiv 2412.06464), equation 10; the matmuls in chunks: Yang et al., "Parallelizing
Linear Transformers with the Delta Rule" (2406.06484), section 3; a decay per channel: "Kimi Linear" (2510.26692). Order
and shapes of the matmuls: transformers' Qwen3NextGatedDeltaNet and, with a decay per channel, KimiLinearDeltaAttention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import STATE_BITS, Mixer
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import CHUNK, Line, Matmul, Pointwise, State


@record(kw_only=True)
class DeltaNet(Mixer):
    """Gated DeltaNet with a state of `key_dim` × `value_dim` for each of `key_heads` · `group` value heads.

    A token decays the state, moves the value stored at its key towards its own value by its rate, and reads with its
    query.

    Queries, keys and values first pass a depthwise convolution over the last `kernel` tokens. Several new tokens run in
    chunks of `chunk` tokens, padded to whole chunks: within a chunk, tokens interact as in attention, and the state is
    read and written once per chunk. A decode step processes its token alone. `decay`: one per head or per key
    `channel`. `rank`: decays and gate are low-rank projections (KimiLinearDeltaAttention); None: one matmul each
    (BailingHybridForgetGate). `floor`: least logarithm of a decay, by a sigmoid instead of a softplus. `doubled`: the
    rate is between 0 and 2 instead of 0 and 1.
    """

    hidden: Size
    key_heads: Size
    group: Size
    key_dim: Size
    value_dim: Size
    kernel: Size
    rank: Size | None = None
    decay: Literal["head", "channel"] = "head"
    floor: float | None = None
    doubled: bool = False
    gate: Literal["silu", "sigmoid"] = "silu"
    activation: str = "silu"
    eps: float = 1e-6
    chunk: Size = 64

    name: ClassVar[str] = "delta"
    hf_loop: ClassVar[str] = "the token chunks in Python: 4,096 tokens take up to half a minute"
    label: ClassVar[str] = "DeltaNet"
    axis_names: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "key_heads": "Kd",
        "group": "Gd",
        "key_dim": "Hk",
        "value_dim": "Hv",
        "kernel": "Kc",
        "rank": "Rd",
        "chunk": CHUNK,
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Nd": "value heads of DeltaNet, Kd · Gd",
        "Kd": "key heads of DeltaNet",
        "Gd": "value heads per key head of DeltaNet",
        "Hk": "size of a key head",
        "Hv": "size of a value head",
        "Dc": "channels of the convolution, 2 · Kd · Hk + Kd · Gd · Hv",
        "Kc": "convolution kernel size in tokens",
        "Rd": "rank of the projections to decays and gates",
        "Pc": "tokens in a chunk",
        "Qc": "keys of a chunk, Pc",
    }

    made: ClassVar[dict[str, str]] = {"Nd": "Kd · Gd", "Dc": "2 · Kd · Hk + Kd · Gd · Hv", "Qc": "Pc"}
    cases: ClassVar[frozenset[str]] = frozenset(("Kd", "Gd", "Kc"))
    tp_heads: ClassVar[str] = "key_heads"
    recurrence: ClassVar[str] = "the triangular systems of DeltaNet, and its recurrence in decode"

    @property
    def by_channel(self) -> bool:
        """True if each key channel has its own decay."""
        return self.decay == "channel"

    @property
    def heads(self) -> Size:
        """Number of value heads, Nd = Kd · Gd."""
        return self.key_heads * self.group

    @property
    def channels(self) -> Size:
        """Number of channels of queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.heads * self.value_dim

    def lines(self, at: str) -> Iterator[Line]:
        """Projections, convolution, recurrence in chunks and by one token, gated norm, output, and the cache: last
        tokens of the convolution and the state of each head."""
        yield from self._token_lines(at)
        yield from self._in_chunks(at)
        yield Pointwise(f"{at}.recurrence", "B Tr Nd Hk Hv")
        yield Pointwise(f"{at}.step_read", "B Tr Nd Hv")
        yield Pointwise(f"{at}.out_norm", "B T Nd Hv", weight="Hv", kind="norm_rms")
        yield Pointwise(f"{at}.gate", "B T Nd Hv", kind="gate", function="silu")
        yield Matmul(f"{at}.out_proj", "B T Nd Hv, Nd Hv D -> B T D")
        yield State(f"{at}.conv_state", "B Dc Kc")
        yield State(f"{at}.delta_state", "B Nd Hk Hv", STATE_BITS)

    def _token_lines(self, at: str) -> Iterator[Line]:
        """Query, key, value, gate, rate and decay of each token."""
        yield Matmul(f"{at}.q_proj", "B T D, D Kd Hk -> B T Kd Hk")
        yield Matmul(f"{at}.k_proj", "B T D, D Kd Hk -> B T Kd Hk")
        yield Matmul(f"{at}.v_proj", "B T D, D Nd Hv -> B T Nd Hv")
        if self.rank is None:
            yield Matmul(f"{at}.gate_proj", "B T D, D Nd Hv -> B T Nd Hv")
        else:
            yield Matmul(f"{at}.gate_a_proj", "B T D, D Rd -> B T Rd")
            yield Matmul(f"{at}.gate_b_proj", "B T Rd, Rd Nd Hv -> B T Nd Hv")
        yield Matmul(f"{at}.rate_proj", "B T D, D Nd -> B T Nd")
        if self.rank is None:
            made = "Nd Hk" if self.by_channel else "Nd"
            yield Matmul(f"{at}.decay_proj", f"B T D, D {made} -> B T {made}")
        else:
            yield Matmul(f"{at}.decay_a_proj", "B T D, D Rd -> B T Rd")
            yield Matmul(f"{at}.decay_b_proj", "B T Rd, Rd Nd Hk -> B T Nd Hk")
        yield Matmul(f"{at}.conv", "B T Dc Kc, Dc Kc -> B T Dc")
        yield Pointwise(f"{at}.conv_act", "B T Dc", kind="activation", function=self.activation)
        yield Pointwise(f"{at}.q_norm", "B T Nd Hk", kind="norm_rms")
        yield Pointwise(f"{at}.k_norm", "B T Nd Hk", kind="norm_rms")
        yield Pointwise(f"{at}.rate", "B T Kd Gd")
        decays = "Nd Hk" if self.by_channel else "Nd"
        yield Pointwise(f"{at}.decay", f"B T {decays}", weight="Nd", bias=decays)

    def _in_chunks(self, at: str) -> Iterator[Line]:
        """Interaction within each chunk, then, chunk by chunk, with the state: values at the keys, results at the
        queries, update."""
        pairs, ahead = "B Nc Nd Pc Qc", "B Nc Qc Nd Hv -> B Nc Pc Nd Hv"
        if not self.by_channel:
            yield Pointwise(f"{at}.pair_decay", pairs)
            for name in ("key_pairs", "chunk_scores"):
                yield Matmul(f"{at}.{name}", f"B Nc Pc Nd Hk, B Nc Qc Nd Hk -> {pairs}")
            yield Pointwise(f"{at}.new_values", "B Nc Pc Nd Hv")
            yield Pointwise(f"{at}.new_keys", "B Nc Pc Nd Hk")
        else:
            yield Pointwise(f"{at}.pair_decay", f"{pairs} Hk")
            for name in ("key_pairs", "chunk_scores"):
                yield Pointwise(f"{at}.{name}", f"{pairs} Hk")
            yield Pointwise(f"{at}.inverse", pairs)
            yield Matmul(f"{at}.new_values", f"{pairs}, {ahead}")
            yield Matmul(f"{at}.new_keys", f"{pairs}, B Nc Qc Nd Hk -> B Nc Pc Nd Hk")
        yield Matmul(f"{at}.old_values", "B Nc Pc Nd Hk, B Nc Nd Hk Hv -> B Nc Pc Nd Hv")
        yield Pointwise(f"{at}.correction", "B Nc Pc Nd Hv", kind="sum")
        yield Matmul(f"{at}.state_read", "B Nc Pc Nd Hk, B Nc Nd Hk Hv -> B Nc Pc Nd Hv")
        yield Matmul(f"{at}.chunk_values", f"{pairs}, {ahead}")
        yield Pointwise(f"{at}.read_add", "B Nc Pc Nd Hv", kind="sum")
        yield Matmul(f"{at}.state_write", "B Nc Qc Nd Hk, B Nc Qc Nd Hv -> B Nc Nd Hk Hv")
        yield Pointwise(f"{at}.state_decay", "B Nc Nd Hk Hv")
