"""Multi-head latent attention (MLA): keys and values of all heads are products of one short vector per token, the
latent, which is kept.

"DeepSeek-V2" (arXiv 2405.04434), section 2.1: low-rank joint compression of keys and values, decoupled rotary keys, and
the absorption of the up-projections. The expanded form: transformers' DeepseekV3Attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias

from tfacct.architecture.parts.attention import Gate, Rotary, Temperature
from tfacct.architecture.parts.indexer import Indexer
from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Mask, Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State

Form: TypeAlias = Literal["auto", "expanded", "absorbed", "unpacked"]
"""Ways to run it: see LatentAttention."""
CHOSEN: tuple[Form, ...] = ("expanded", "absorbed")
"""Forms that `auto` chooses from: they keep the same state, so each step may run either."""


@record(kw_only=True)
class LatentAttention(Part):
    """Causal self-attention whose keys and values are products of a latent of `kv_rank` numbers per token.

    A key has `nope_dim` numbers from the latent, without position, and `rope_dim` rotated ones that all heads share,
    or, without `rotary`, as many that are not rotated; with a `rope_dim` of None there are none of those. `temperature`
    multiplies the queries (Mistral4Attention).
    With a `q_rank`, queries come from a latent too. Three forms give the same result:
    `expanded` keeps the latent and computes the keys and values of every token again in each step, as transformers
    does; `absorbed` keeps the latent and takes queries and results into its space, as engines do when they decode;
    `unpacked` keeps the keys and values of all heads.
    `indexer`: chooses the keys of a token.
    If `stretched`, factors multiply queries and the normed latent, √(hidden / q_rank) and √(hidden / kv_rank)
    (LongcatFlashMLA); where that `stretches` latents, the queries' is multiplied in place of them. `turned_norm`: what
    all heads share passes an RMSNorm before it is rotated; `window`: number of keys that a query sees, its own the last
    of them (Dots3NoteTextAttention).
    `sinks`: one learned score per head belongs to no key
    (HYV4Attention). `learned`: two learned numbers of each head multiply queries by the logarithm of their position.
    `borrowed`: the latent is the last one before it that has the same numbers rotated, or none, and it keeps none
    (MistralLarge4TextAttention). `paired`: queries, and what gates, are made of their latent and its norm side by side;
    an indexer's of the norm alone (AXK2Attention).
    `auto` leaves it to each step: `expanded` or `absorbed`, whichever takes fewer FLOPs. It has no lines of its own.
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
    form: Form = "auto"
    scale: float | None = None
    temperature: Temperature | None = None
    indexer: Indexer | None = None
    gate: Gate | None = None
    sinks: bool = False
    stretched: bool = False
    stretches: Literal["heads", "latents"] = "heads"
    turned_norm: bool = False
    window: Size | None = None
    learned: bool = False
    borrowed: bool = False
    paired: bool = False

    name: ClassVar[str] = "attn"
    letters: ClassVar[dict[str, str]] = {
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
        "Rs": "elements kept per token, R + Hr",
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
        if self.borrowed and self.form != "absorbed":
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

    def running(self, form: Form) -> LatentAttention:
        """Return the part run in another form."""
        return replace(self, form=form)

    def lines(self, at: str) -> tuple[Line, ...]:
        """Products down to latents, up to heads or into the latent's space, scores, values, output; and the state.

        Raises ValueError while the form is `auto`.
        """
        if self.form == "auto":
            raise ValueError(f"{at}: the form of latent attention is still open")
        found = self._lines(at)
        return found if self.rope_dim is not None else tuple(line.renamed({"Rs": "R", "Hq": "Hp"}) for line in found)

    def _lines(self, at: str) -> tuple[Line, ...]:
        return (
            *self._queries(at),
            *(() if self.temperature is None else (Pointwise(f"{at}.q_scale", "B T N Hq", kind="scale"),)),
            *((Pointwise(f"{at}.q_scale", "B T N Hq", weight="N", bias="N"),) if self.learned else ()),
            *((Pointwise(f"{at}.q_stretch", "B T N Hq"),) if self.stretched and self.stretches == "heads" else ()),
            *(() if self.borrowed else self._latent(at)),
            *self._turned(at),
            *self._index(f"{at}.indexer"),
            *(self._in_latent_space(at) if self.form == "absorbed" else self._by_head(at)),
            *self._gate(at),
            Matmul(f"{at}.o_proj", "B T N Hv, N Hv D -> B T D", bias=self.bias),
            *self._kept(at),
        )

    def _latent(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.kv_a_proj", "B T D, D Rs -> B T Rs", bias=self.bias)
        yield Pointwise(f"{at}.kv_a_norm", "B T R", weight="R", kind="norm_rms")
        if self.stretched:
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

    def _turned(self, at: str) -> Iterator[Line]:
        if self.turned_norm:
            yield Pointwise(f"{at}.turned_norm", "B T Hr", weight="Hr", kind="norm_rms")
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
            if self.stretched and self.stretches == "latents":
                yield Pointwise(f"{at}.q_stretch", "B T Rq")
            read = "Rj" if self.paired else "Rq"
            yield Matmul(f"{at}.q_b_proj", f"B T {read}, {read} N Hq -> B T N Hq")

    def _index(self, at: str) -> Iterator[Line]:
        if self.indexer is not None and not self.indexer.reused:
            yield from self.indexer.scores(at, rotary=self.rotary is not None)

    def _by_head(self, at: str) -> Iterator[Line]:
        new = "S" if self.form == "expanded" else "T"
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

    def _kept(self, at: str) -> Iterator[Line]:
        if self.form == "unpacked":
            yield State(f"{at}.k_cache", "B S N Hq")
            yield State(f"{at}.v_cache", "B S N Hv")
        elif not self.borrowed:
            yield State(f"{at}.latent_cache", "B S R")
            if self.rope_dim is not None:
                yield State(f"{at}.rotary_cache", "B S Hr")
        if self.indexer is not None and not self.indexer.reused:
            yield State(f"{at}.index_cache", f"B S {self.indexer.cached}")
