"""Multi-head latent attention (MLA): keys and values of all heads are products of one short vector per token, the
latent, which is kept.

"DeepSeek-V2" (arXiv 2405.04434), section 2.1: low-rank joint compression of keys and values, decoupled rotary keys, and
the absorption of the up-projections. The expanded form: transformers' DeepseekV3Attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias

from tfacct.architecture.parts.attention import INDEXER, Rotary, Temperature
from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Mask, Size
from tfacct.ledger.lines import RATES, Line, Matmul, Pointwise, State
from tfacct.ledger.workload import COMPRESSED

Form: TypeAlias = Literal["auto", "expanded", "absorbed", "unpacked"]
"""Ways to run it: see LatentAttention."""
OF_INDEXER = frozenset(("Nx", "Hx", RATES["light"]))
"""Letters of an indexer, which a block that follows another's choice has not."""
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
    With `index_top`, an indexer of `index_heads` heads of `index_dim` chooses so many keys for each token; it `follows`
    where the choice is that of the last block before it that has an indexer. Of an indexer's head `rope_dim` numbers
    are rotated, in `index_pairs`. "DeepSeek-V3.2", section 2.1, and transformers' DeepseekV32Indexer. With `index_pool`
    it scores keys made of so many tokens each, which it makes anew in each step of the keys and weights of all tokens,
    and chooses all tokens of a key, and `index_tail`, those that make no whole key yet (Glm5NextTextIndexer).
    If `stretched`, factors multiply queries and the normed latent, √(hidden / q_rank) and √(hidden / kv_rank)
    (LongcatFlashMLA); where that `stretches` latents, the queries' is multiplied in place of them. `turned_norm`: what
    all heads share passes an RMSNorm before it is rotated; `window`: number of keys that a query sees, its own the last
    of them (Dots3NoteTextAttention).
    If `gated`, one number of each head gates all that it reads, by a sigmoid (BailingHybridAttention), or, where
    `gates` says "channels", each channel has one. `sinks`: one learned score per head belongs to no key
    (HYV4Attention). `index_last`: of an indexer's head the last numbers are rotated, not the first. `index_streamed`:
    an indexer's queries are made of the stream, behind a LayerNorm of its own. `learned`: two learned numbers of each
    head, and of each of an indexer's, multiply queries by the logarithm of their position. `borrowed`: the latent is
    the last one before it that has the same numbers rotated, or none, and it keeps none (MistralLarge4TextAttention).
    `paired`: queries, and what gates, are made of their latent and its norm side by side; an indexer's of the norm
    alone (AXK2Attention).
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
    index_heads: Size | None = None
    index_dim: Size | None = None
    index_top: Size | None = None
    index_pairs: Literal["halves", "neighbours"] = "halves"
    follows: bool = False
    gated: bool = False
    gates: Literal["heads", "channels"] = "heads"
    sinks: bool = False
    index_last: bool = False
    index_pool: Size | None = None
    index_tail: bool = True
    stretched: bool = False
    stretches: Literal["heads", "latents"] = "heads"
    turned_norm: bool = False
    window: Size | None = None
    index_streamed: bool = False
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
        "index_heads": "Nx",
        "index_dim": "Hx",
        "index_top": "Sx",
        "index_pool": RATES["light"],
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
        **INDEXER,
        "Sx": "keys that the indexer chooses for a token",
        RATES["light"]: "tokens that a lightly compressed key is made of",
        "Hy": "numbers of a token that an indexer keeps: its key, their weights and a mark of padding, 2 · Hx + 1",
    }

    made: ClassVar[dict[str, str]] = {"Hq": "Hp + Hr", "Rs": "R + Hr"}
    cases: ClassVar[frozenset[str]] = frozenset("N")

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
        return {**sums, **({"Hy": "2 · Hx + 1"} if self.indexes and self.index_pool is not None else {})}

    def multiples(self) -> dict[str, int]:
        """Rotary positions turn numbers in pairs."""
        return {} if self.rotary is None else {"Hr": 2}

    @property
    def mask(self) -> Mask:
        """Pairs that count under a mask: those up to the query, or the chosen ones of them, where that is counted."""
        return "causal" if self.index_top is None or self.index_pool is not None else "chosen"

    @property
    def indexes(self) -> bool:
        """True if it chooses keys itself."""
        return self.index_top is not None and not self.follows

    def sizes(self) -> dict[str, str]:
        """Return field → axis; a block that follows another's choice has no indexer."""
        absent = frozenset[str]() if self.indexes else OF_INDEXER
        absent |= {"Sx"} if self.index_pool is not None else frozenset()  # which no line and no mask reads
        return {field: letter for field, letter in Part.sizes(self).items() if letter not in absent}

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
            *self._index(at),
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
        if self.gated:
            made = "N Hv" if self.gates == "channels" else "N"
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
        """Scores by which keys are chosen: of heads of their own over one key for each token, weighted and summed."""
        if not self.indexes:
            return
        at = f"{at}.indexer"
        read = "D" if self.index_streamed else "Rq"
        if self.index_streamed:
            yield Pointwise(f"{at}.q_norm", "B T D", weight="D", bias="D", kind="norm_layer")
        yield Matmul(f"{at}.q_proj", f"B T {read}, {read} Nx Hx -> B T Nx Hx")
        if self.learned:
            yield Pointwise(f"{at}.q_scale", "B T Nx Hx", weight="Nx", bias="Nx")
        yield Matmul(f"{at}.k_proj", "B T D, D Hx -> B T Hx")
        yield Pointwise(f"{at}.k_norm", "B T Hx", weight="Hx", bias="Hx", kind="norm_layer")
        if self.index_pool is not None:
            yield from self._pooled(at)
            return
        if self.rotary is not None:
            yield Pointwise(f"{at}.q_rotary", "B T Nx Hr", kind="rotary")
            yield Pointwise(f"{at}.k_rotary", "B T Hr", kind="rotary")
        yield Matmul(f"{at}.scores", "B T Nx Hx, B S Hx -> B Nx T S", mask="causal")
        yield Pointwise(f"{at}.act", "B Nx T S", kind="activation")
        yield Matmul(f"{at}.weights_proj", "B T D, D Nx -> B T Nx")
        yield Matmul(f"{at}.sum", "B T Nx, B Nx T S -> B T S", mask="causal")

    def _pooled(self, at: str) -> Iterator[Line]:
        """Keys made of several tokens each, of all that are kept, and their scores."""
        keys, rate = COMPRESSED["entries"]["light"], RATES["light"]
        yield Matmul(f"{at}.gate_proj", "B T D, D Hx -> B T Hx")
        yield Pointwise(f"{at}.position_bias", f"B {keys} {rate} Hx", bias=f"{rate} Hx")
        yield Pointwise(f"{at}.softmax", f"B {keys} {rate} Hx", kind="softmax")
        yield Pointwise(f"{at}.weighting", f"B {keys} {rate} Hx", kind="weighting")
        yield Matmul(f"{at}.scores", f"B T Nx Hx, B {keys} Hx -> B Nx T {keys}", mask="entries")
        yield Pointwise(f"{at}.act", f"B Nx T {keys}", kind="activation")
        yield Matmul(f"{at}.weights_proj", "B T D, D Nx -> B T Nx")
        yield Matmul(f"{at}.sum", f"B T Nx, B Nx T {keys} -> B T {keys}", mask="entries")

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
        if self.indexes:
            yield State(f"{at}.index_cache", "B S Hx" if self.index_pool is None else "B S Hy")
