"""Multi-head latent attention (MLA): keys and values of all heads are projections of one latent per token, which is
cached.

"DeepSeek-V2" (arXiv 2405.04434), section 2.1: low-rank joint compression of keys and values, decoupled rotary keys, and
the absorption of the up-projections. The expanded form: transformers' DeepseekV3Attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias

from tfacct.architecture.parts.attention import Gate, Rotary, SelfAttention, Temperature
from tfacct.architecture.parts.indexer import Indexer
from tfacct.base.record import record
from tfacct.ledger.einsum import Mask, Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State

MlaMode: TypeAlias = Literal["auto", "expanded", "absorbed", "unpacked"]
"""Ways to run it: see LatentAttention."""
CHOSEN: tuple[MlaMode, ...] = ("expanded", "absorbed")
"""Forms that `auto` chooses from: they keep the same state, so each step may run either."""


@record(kw_only=True)
class LatentAttention(SelfAttention):
    """Causal self-attention whose keys and values are products of a latent of `kv_rank` numbers per token.

    A key has `nope_dim` numbers from the latent, without position, and `rope_dim` ones that all heads share, with
    rotary embedding unless `rotary` is None; with a `rope_dim` of None it has the former alone.

    - `q_rank`: size of a latent that queries come from; None: they come from the token.
    - `mla_mode`: all give the same result. `expanded` caches the latent and computes keys and values of every token
      again in each step, as transformers does; `absorbed` caches the latent and takes queries and results into its
      space, as engines do when they decode; `unpacked` caches keys and values of all heads. `auto` leaves each step
      whichever of the first two takes fewer FLOPs; it has no lines of its own.
    - `window`: keys that a query sees, its own the last of them. `indexer`: chooses the keys that a token sees.
    - `gate`: of what heads read. `sinks`: one learned score per head of no key.
    - `scale`: factor of the scores, None for (nope_dim + rope_dim)^−½. `temperature`: factor of queries by their
      position, or by two numbers that each head has `learned` (MistralLarge4TextAttention).
    - `stretch`: √(hidden / kv_rank) multiplies the normed latent, √(hidden / q_rank) the `queries` (LongcatFlashMLA) or
      their latent, which are `latents` both (Dots3NoteTextAttention).
    - `rope_norm`: what all heads share passes an RMSNorm before its rotary embedding (Dots3NoteTextAttention).
    - `borrowed`: the latent is the last one before it with the same rotary dimensions, or none; it caches none
      (MistralLarge4TextAttention).
    - `paired`: queries and the gate are made of a latent and its norm side by side, those of an indexer of the norm
      alone (AXK2Attention).
    """

    hidden: Size
    heads: Size
    kv_rank: Size
    nope_dim: Size
    rope_dim: Size | None
    value_dim: Size
    q_rank: Size | None = None
    bias: bool = False
    eps: float = 1e-6
    rotary: Rotary | None = None
    mla_mode: MlaMode = "auto"
    scale: float | None = None
    temperature: Temperature | Literal["learned"] | None = None
    indexer: Indexer | None = None
    gate: Gate | None = None
    sinks: bool = False
    stretch: Literal["queries", "latents"] | None = None
    rope_norm: bool = False
    window: Size | None = None
    borrowed: bool = False
    paired: bool = False

    name: ClassVar[str] = "attn"
    axis_names: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "heads": "N",
        "kv_rank": "R",
        "nope_dim": "Hp",
        "rope_dim": "Hr",
        "value_dim": "Hv",
        "q_rank": "Rq",
        "window": "W",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "N": "query heads",
        "R": "size of the latent of keys and values",
        "Rq": "size of the latent of queries",
        "Rj": "latent of queries and its norm side by side, 2 · Rq",
        "Rs": "elements cached per token, R + Hr",
        "Hq": "size of a query or key head, Hp + Hr",
        "Hp": "elements of a key head made from the latent",
        "Hr": "rotated elements of a head",
        "Hv": "size of a value head",
        "W": "keys that a query of a windowed block sees",
    }

    made: ClassVar[dict[str, str]] = {"Hq": "Hp + Hr", "Rs": "R + Hr"}
    cases: ClassVar[frozenset[str]] = frozenset("N")
    nested: ClassVar[tuple[str, ...]] = ("indexer",)

    @property
    def kv_heads(self) -> Size:
        """Number of key/value heads: every query head has keys and values of its own."""
        return self.heads

    @property
    def query(self) -> Size:
        """Size of a query or key head, Hq = Hp + Hr."""
        return self.nope_dim if self.rope_dim is None else self.nope_dim + self.rope_dim

    def derived(self) -> dict[str, str]:
        """Sizes of a head and of what is kept, where a part of a key is no product of the latent."""
        sums = dict(self.made) if self.rope_dim is not None else {}
        if self.borrowed and self.mla_mode != "absorbed":
            sums.pop("Rs", None)  # another block makes and keeps them
        sums |= {"Rj": "2 · Rq"} if self.paired else {}
        return sums

    def multiples(self) -> dict[str, int]:
        """Rotary positions turn numbers in pairs."""
        return {} if self.rotary is None else {"Hr": 2}

    @property
    def mask(self) -> Mask:
        """Pairs that count under a mask: those up to the query, or the chosen ones of them, where that is counted."""
        return "causal" if self.indexer is None else self.indexer.mask

    @property
    def indexes(self) -> bool:
        """True if it chooses keys itself."""
        return self.indexer is not None and not self.indexer.reused

    def running(self, mode: MlaMode) -> LatentAttention:
        """Return the part run in another mode."""
        return replace(self, mla_mode=mode)

    def lines(self, at: str) -> tuple[Line, ...]:
        """Products down to latents, up to heads or into the latent's space, scores, values, output; and the state.

        Raises ValueError while the form is `auto`.
        """
        if self.mla_mode == "auto":
            raise ValueError(f"{at}: the form of latent attention is still open")
        found = self._lines(at)
        return found if self.rope_dim is not None else tuple(line.renamed({"Rs": "R", "Hq": "Hp"}) for line in found)

    def _lines(self, at: str) -> tuple[Line, ...]:
        return (
            *self._queries(at),
            *self._scaled_queries(at),
            *(() if self.borrowed else self._latent(at)),
            *self._rotary(at),
            *self._index(f"{at}.indexer"),
            *(self._in_latent_space(at) if self.mla_mode == "absorbed" else self._by_head(at)),
            *self._gate(at),
            Matmul(f"{at}.o_proj", "B T N Hv, N Hv D -> B T D", bias=self.bias),
            *self._caches(at),
        )

    def _scaled_queries(self, at: str) -> Iterator[Line]:
        if self.temperature == "learned":
            yield Pointwise(f"{at}.q_scale", "B T N Hq", weight="N", bias="N")
        elif self.temperature is not None:
            yield Pointwise(f"{at}.q_scale", "B T N Hq", kind="scale")
        if self.stretch == "queries":
            yield Pointwise(f"{at}.q_stretch", "B T N Hq")

    def _latent(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.kv_a_proj", "B T D, D Rs -> B T Rs", bias=self.bias)
        yield Pointwise(f"{at}.kv_a_norm", "B T R", weight="R", kind="norm_rms")
        if self.stretch is not None:
            yield Pointwise(f"{at}.kv_stretch", "B T R")

    def _gate(self, at: str) -> Iterator[Line]:
        if self.gate is not None:
            made = "N Hv" if self.gate.of == "elements" else "N"
            read = "Rj" if self.paired else "D"
            yield Matmul(f"{at}.gate_proj", f"B T {read}, {read} {made} -> B T {made}")
            yield Pointwise(f"{at}.gate", "B T N Hv", kind="gate")

    def _softmax(self, at: str) -> Iterator[Line]:
        if self.sinks:
            yield Pointwise(f"{at}.sinks", "B N T", weight="N")
        yield Pointwise(f"{at}.softmax", "B N T S", kind="softmax")

    def _rotary(self, at: str) -> Iterator[Line]:
        if self.rope_norm:
            yield Pointwise(f"{at}.rope_norm", "B T Hr", weight="Hr", kind="norm_rms")
        if self.rotary is not None:
            yield Pointwise(f"{at}.q_rotary", "B T N Hr", kind="rotary")
            if not self.borrowed:
                yield Pointwise(f"{at}.k_rotary", "B T Hr", kind="rotary")

    def _queries(self, at: str) -> Iterator[Line]:
        if self.q_rank is None:
            yield Matmul(f"{at}.q_proj", "B T D, D N Hq -> B T N Hq")
        else:
            yield Matmul(f"{at}.q_a_proj", "B T D, D Rq -> B T Rq", bias=self.bias)
            yield Pointwise(f"{at}.q_a_norm", "B T Rq", weight="Rq", kind="norm_rms")
            if self.stretch == "latents":
                yield Pointwise(f"{at}.q_stretch", "B T Rq")
            read = "Rj" if self.paired else "Rq"
            yield Matmul(f"{at}.q_b_proj", f"B T {read}, {read} N Hq -> B T N Hq")

    def _index(self, at: str) -> Iterator[Line]:
        if self.indexer is not None and not self.indexer.reused:
            yield from self.indexer.scores(at, rotary=self.rotary is not None)

    def _by_head(self, at: str) -> Iterator[Line]:
        new = "S" if self.mla_mode == "expanded" else "T"
        yield Matmul(f"{at}.k_b_proj", f"B {new} R, R N Hp -> B {new} N Hp")
        yield Matmul(f"{at}.v_b_proj", f"B {new} R, R N Hv -> B {new} N Hv")
        yield Matmul(f"{at}.scores", "B T N Hq, B S N Hq -> B N T S", mask=self.mask)
        yield from self._softmax(at)
        yield Matmul(f"{at}.values", "B N T S, B S N Hv -> B T N Hv", mask=self.mask)

    def _in_latent_space(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.k_b_proj", "B T N Hp, R N Hp -> B T N R")
        yield Matmul(f"{at}.scores", "B T N Rs, B S Rs -> B N T S", mask=self.mask)
        yield from self._softmax(at)
        yield Matmul(f"{at}.values", "B N T S, B S R -> B T N R", mask=self.mask)
        yield Matmul(f"{at}.v_b_proj", "B T N R, R N Hv -> B T N Hv")

    def _caches(self, at: str) -> Iterator[Line]:
        if self.mla_mode == "unpacked":
            yield State(f"{at}.k_cache", "B S N Hq")
            yield State(f"{at}.v_cache", "B S N Hv")
        elif not self.borrowed:
            yield State(f"{at}.latent_cache", "B S R")
            if self.rope_dim is not None:
                yield State(f"{at}.rotary_cache", "B S Hr")
        if self.indexer is not None and not self.indexer.reused:
            yield State(f"{at}.index_cache", f"B S {self.indexer.cached}")
