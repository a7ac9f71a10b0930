"""Attention to the last tokens and to compressed keys: each is made of several tokens, and is key and value at once.

"DeepSeek-V4" (arXiv 2606.19348), section 2.3: compressed sparse attention, heavily compressed attention, the grouped
output projection; the order and the shapes of the products are those of transformers' DeepseekV4Attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.attention import Rotary
from tfacct.architecture.parts.indexer import LEGEND as INDEXER
from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Mask, Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State
from tfacct.ledger.workload import COMPRESSED


@record(kw_only=True)
class CompressedAttention(Part):
    """Causal self-attention of `groups` · `group_heads` query heads to one head of keys, which are values too.

    Queries come from a latent of `q_rank` numbers. A query sees the last `window` tokens, and, where tokens are
    compressed, the keys that are made of `light` or of `heavy` of them: sums weighted by a softmax over the tokens, for
    each number by itself. With `light` a key is made of two shares, one of its own tokens and one of those before, and
    an indexer of `index_heads` heads over keys of `index_dim` numbers, compressed in the same way, chooses `index_top`
    of them for each token. Each head has a sink. `rope_dim` numbers of a head are turned, in the result back again. The
    result is projected by `groups` of heads to `out_rank` numbers each, then all together. `twice`: the keys of the
    window are kept as values too.
    """

    hidden: Size
    groups: Size
    group_heads: Size
    head_dim: Size
    rope_dim: Size
    q_rank: Size
    out_rank: Size
    window: Size
    light: Size | None
    heavy: Size | None
    index_heads: Size | None
    index_dim: Size | None
    index_top: Size | None
    rotary: Rotary
    eps: float = 1e-6
    twice: bool = False

    name: ClassVar[str] = "attn"
    letters: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "groups": "Og",
        "group_heads": "Ng",
        "head_dim": "H",
        "rope_dim": "Hr",
        "q_rank": "Rq",
        "out_rank": "Ro",
        "window": "W",
        "light": "Mc",
        "heavy": "Mh",
        "index_heads": "Nx",
        "index_dim": "Hx",
        "index_top": "Sx",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "N": "query heads, Og · Ng",
        "Og": "groups of heads that are projected together",
        "Ng": "heads in a group",
        "H": "size of one head",
        "Hr": "rotated elements of a head",
        "Rq": "size of the latent of queries",
        "Ro": "numbers that a group of heads is projected to",
        "W": "keys that a query of a windowed block sees",
        "Mc": "tokens that a lightly compressed key is made of",
        "Mh": "tokens that a heavily compressed key is made of",
        "Hu": "a token's shares of its own key and of the next, 2 · H",
        **INDEXER,
        "Hw": "the same of an indexer's key, 2 · Hx",
        "Sx": "keys that the indexer chooses for a token",
    }
    made: ClassVar[dict[str, str]] = {"N": "Og · Ng"}
    at_most: ClassVar[dict[str, str]] = {"Hr": "H"}
    cut: ClassVar[frozenset[str]] = frozenset(("Hr",))

    @property
    def heads(self) -> Size:
        """Number of query heads, N = Og · Ng."""
        return self.groups * self.group_heads

    @property
    def kv_heads(self) -> Size:
        """Number of key heads, which are value heads too: 1."""
        return 1

    @property
    def kind(self) -> Literal["light", "heavy"] | None:
        """How its tokens are compressed; None where a query sees those of a window alone."""
        return "light" if self.light is not None else "heavy" if self.heavy is not None else None

    @property
    def mask(self) -> Mask:
        """Pairs with compressed keys that count under a mask: those that are full, or the chosen ones of them."""
        return "entries" if self.index_top is None else "chosen entries"

    def derived(self) -> dict[str, str]:
        """Query heads, and both shares of keys that overlap."""
        return self.made | ({} if self.light is None else {"Hu": "2 · H", "Hw": "2 · Hx"})

    def multiples(self) -> dict[str, int]:
        """Rotary positions turn numbers in pairs."""
        return {"Hr": 2}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Queries and keys, compressed keys, scores and values of both, the result by groups; and the states."""
        kind = self.kind
        return (
            Matmul(f"{at}.q_a_proj", "B T D, D Rq -> B T Rq"),
            Pointwise(f"{at}.q_a_norm", "B T Rq", weight="Rq", kind="norm_rms"),
            Matmul(f"{at}.q_b_proj", "B T Rq, Rq N H -> B T N H"),
            Pointwise(f"{at}.q_b_norm", "B T N H", kind="norm_rms"),
            Matmul(f"{at}.kv_proj", "B T D, D H -> B T H"),
            Pointwise(f"{at}.kv_norm", "B T H", weight="H", kind="norm_rms"),
            Pointwise(f"{at}.q_rotary", "B T N Hr", kind="rotary"),
            Pointwise(f"{at}.kv_rotary", "B T Hr", kind="rotary"),
            *(() if kind is None else self._compressed(f"{at}.compressor", kind, "H", "Hu")),
            *(() if self.light is None else self._index(f"{at}.compressor.indexer")),
            Matmul(f"{at}.scores", "B T N H, B S H -> B N T S", mask="causal"),
            *(() if kind is None else self._scores_of_entries(at, kind)),
            Pointwise(f"{at}.sinks", "B N T", weight="N"),
            Pointwise(f"{at}.softmax", "B N T S", kind="softmax"),
            Matmul(f"{at}.values", "B N T S, B S H -> B T N H", mask="causal"),
            *(() if kind is None else self._values_of_entries(at, kind)),
            Pointwise(f"{at}.out_rotary", "B T N Hr", kind="rotary"),
            Matmul(f"{at}.o_a_proj", "B T Og Ng H, Ng H Og Ro -> B T Og Ro"),
            Matmul(f"{at}.o_b_proj", "B T Og Ro, Og Ro D -> B T D"),
            State(f"{at}.kv_cache", "B S H"),
            *((State(f"{at}.v_cache", "B S H"),) if self.twice else ()),
            *(() if kind is None else self._kept(f"{at}.compressor", kind, "H", "Hu")),
            *(() if self.light is None else self._kept(f"{at}.compressor.indexer", "light", "Hx", "Hw")),
        )

    def _scores_of_entries(self, at: str, kind: str) -> Iterator[Line]:
        entries = COMPRESSED["entries"][kind]
        yield Matmul(f"{at}.compressed_scores", f"B T N H, B {entries} H -> B N T {entries}", mask=self.mask)
        yield Pointwise(f"{at}.compressed_softmax", f"B N T {entries}", kind="softmax")

    def _values_of_entries(self, at: str, kind: str) -> Iterator[Line]:
        entries = COMPRESSED["entries"][kind]
        yield Matmul(f"{at}.compressed_values", f"B N T {entries}, B {entries} H -> B T N H", mask=self.mask)
        yield Pointwise(f"{at}.compressed_add", "B T N H", kind="sum")

    def _compressed(self, at: str, kind: str, size: str, both: str) -> Iterator[Line]:
        """Numbers of each token, their weights, and the keys that are full: of keys that overlap, two shares each."""
        new, rate = COMPRESSED["new"][kind], "Mc" if kind == "light" else "Mh"
        each = both if kind == "light" else size
        yield Matmul(f"{at}.kv_proj", f"B T D, D {each} -> B T {each}")
        yield Matmul(f"{at}.gate_proj", f"B T D, D {each} -> B T {each}")
        yield Pointwise(f"{at}.position_bias", f"B {new} {rate} {each}", bias=f"{rate} {each}")
        yield Pointwise(f"{at}.softmax", f"B {new} {rate} {each}", kind="softmax")
        yield Pointwise(f"{at}.weighting", f"B {new} {rate} {each}", kind="weighting")
        yield Pointwise(f"{at}.kv_norm", f"B {new} {size}", weight=size, kind="norm_rms")
        yield Pointwise(f"{at}.rotary", f"B {new} Hr", kind="rotary")

    def _index(self, at: str) -> Iterator[Line]:
        """Scores by which keys are chosen: of heads of their own over its compressed keys, weighted and summed."""
        yield from self._compressed(at, "light", "Hx", "Hw")
        yield Matmul(f"{at}.q_proj", "B T Rq, Rq Nx Hx -> B T Nx Hx")
        yield Pointwise(f"{at}.q_rotary", "B T Nx Hr", kind="rotary")
        yield Matmul(f"{at}.scores", "B T Nx Hx, B Sc Hx -> B T Nx Sc", mask="entries")
        yield Pointwise(f"{at}.act", "B T Nx Sc", kind="activation")
        yield Matmul(f"{at}.weights_proj", "B T D, D Nx -> B T Nx")
        yield Pointwise(f"{at}.sum", "B T Nx Sc")

    def _kept(self, at: str, kind: str, size: str, both: str) -> Iterator[Line]:
        """Compressed keys; tokens that wait for theirs to be full, and their weights; of keys that overlap, the shares
        of the next one that the last full one's tokens have."""
        entries, waiting = (COMPRESSED[what][kind] for what in ("entries", "waiting"))
        each = both if kind == "light" else size
        yield State(f"{at}.cache", f"B {entries} {size}")
        yield State(f"{at}.waiting_cache", f"B {waiting} {each}")
        yield State(f"{at}.waiting_gates", f"B {waiting} {each}")
        if kind == "light":
            yield State(f"{at}.overlap_cache", f"B Uc Mc {size}")
            yield State(f"{at}.overlap_gates", f"B Uc Mc {size}")
