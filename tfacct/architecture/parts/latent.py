"""Multi-head latent attention (MLA): keys and values of all heads are projections of one cached latent per token.

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
"""Modes of MLA: see LatentAttention."""
CHOSEN: tuple[MlaMode, ...] = ("expanded", "absorbed")
"""Modes that `auto` chooses from: they have the same cache, so each step may use either."""


@record(kw_only=True)
class LatentAttention(SelfAttention):
    """Causal self-attention with keys and values projected from a latent of `kv_rank` numbers per token.

    A key has `nope_dim` elements from the latent, without position, and `rope_dim` elements shared by all heads, with
    rotary embedding unless `rotary` is None. If `rope_dim` is None, it has only the former.

    - `q_rank`: size of the query latent; None if queries are projected from the token.
    - `mla_mode`: all give the same result. `expanded` caches the latent and recomputes keys and values of every token
      in each step, as transformers does. `absorbed` caches the latent and projects queries and results to its space, as
      engines do in decode. `unpacked` caches keys and values of all heads. `auto` uses for each step whichever of the
      first two takes fewer FLOPs; it has no lines.
    - `window`: keys that a query sees, up to its own. `indexer`: chooses the keys that a token sees.
    - `gate`: of the attention results. `sinks`: one learned score per head without a key.
    - `scale`: factor of the scores, None for (nope_dim + rope_dim)^−½. `temperature`: position-dependent factor of
      queries, or, `learned`, scale and shift per head (MistralLarge4TextAttention).
    - `stretch`: factors √(hidden / kv_rank) of the normed latent and √(hidden / q_rank) of the `queries`
      (LongcatFlashMLA) or, with `latents`, of the queries' latent (Dots3NoteTextAttention).
    - `rope_norm`: RMSNorm of the shared key before its rotary embedding (Dots3NoteTextAttention).
    - `borrowed`: uses and does not cache the latent of the last previous layer with the same rotary dimensions, or also
      without them (MistralLarge4TextAttention).
    - `paired`: queries and gate are projected from a latent concatenated with its norm; those of an indexer from the
      norm only (AXK2Attention).
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
        "R": "size of the key/value latent",
        "Rq": "size of the query latent",
        "Rj": "latent of queries concatenated with its norm, 2 · Rq",
        "Rs": "elements cached per token, R + Hr",
        "Hq": "size of a query or key head, Hp + Hr",
        "Hp": "elements of a key head from the latent",
        "Hr": "rotary dimensions of a head",
        "Hv": "size of a value head",
        "W": "keys that a query of a windowed layer sees",
    }

    made: ClassVar[dict[str, str]] = {"Hq": "Hp + Hr", "Rs": "R + Hr"}
    cases: ClassVar[frozenset[str]] = frozenset("N")
    nested: ClassVar[tuple[str, ...]] = ("indexer",)

    @property
    def kv_heads(self) -> Size:
        """Number of key/value heads: as many as query heads."""
        return self.heads

    @property
    def query(self) -> Size:
        """Size of a query or key head, Hq = Hp + Hr."""
        return self.nope_dim if self.rope_dim is None else self.nope_dim + self.rope_dim

    def derived(self) -> dict[str, str]:
        """Sizes of a head and of the cache, if a key has rotary dimensions."""
        sums = dict(self.made) if self.rope_dim is not None else {}
        if self.borrowed and self.mla_mode != "absorbed":
            sums.pop("Rs", None)  # computed and cached by another layer
        sums |= {"Rj": "2 · Rq"} if self.paired else {}
        return sums

    def multiples(self) -> dict[str, int]:
        """Rotary dimensions come in pairs."""
        return {} if self.rotary is None else {"Hr": 2}

    @property
    def mask(self) -> Mask:
        """Mask of visible pairs: causal, or that of the indexer."""
        return "causal" if self.indexer is None else self.indexer.mask

    @property
    def indexes(self) -> bool:
        """True if it has its own indexer."""
        return self.indexer is not None and not self.indexer.reused

    def running(self, mode: MlaMode) -> LatentAttention:
        """Return the part run in another mode."""
        return replace(self, mla_mode=mode)

    def lines(self, at: str) -> Iterator[Line]:
        """Projections to latents, to heads or to the latent space, scores, values, output, and caches.

        Raises ValueError if the mode is `auto`.
        """
        if self.mla_mode == "auto":
            raise ValueError(f"{at}: mla_mode is still auto")
        found = self._lines(at)
        if self.rope_dim is not None:
            yield from found
        else:
            for line in found:
                yield line.renamed({"Rs": "R", "Hq": "Hp"})

    def _lines(self, at: str) -> Iterator[Line]:
        yield from self._queries(at)
        yield from self._scaled_queries(at)
        if not self.borrowed:
            yield from self._latent(at)
        yield from self._rotary(at)
        yield from self._index(f"{at}.indexer")
        if self.mla_mode == "absorbed":
            yield from self._in_latent_space(at)
        else:
            yield from self._by_head(at)
        yield from self._gate(at)
        yield Matmul(f"{at}.o_proj", "B T N Hv, N Hv D -> B T D", bias=self.bias)
        yield from self._caches(at)

    def _scaled_queries(self, at: str) -> Iterator[Line]:
        if self.temperature == "learned":
            yield Pointwise(f"{at}.q_scale", "B T N Hq", weight="N", bias="N")
        elif self.temperature is not None:
            yield Pointwise(f"{at}.q_scale", "B T N Hq", kind="scale")
        if self.stretch == "queries":
            yield Pointwise(f"{at}.q_stretch", "B T N Hq", kind="scale")

    def _latent(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.kv_a_proj", "B T D, D Rs -> B T Rs", bias=self.bias)
        yield Pointwise(f"{at}.kv_a_norm", "B T R", weight="R", kind="norm_rms")
        if self.stretch is not None:
            yield Pointwise(f"{at}.kv_stretch", "B T R", kind="scale")

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
                yield Pointwise(f"{at}.q_stretch", "B T Rq", kind="scale")
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
