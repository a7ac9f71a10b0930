"""Indexers, which choose the keys that a token attends to (sparse attention).

"DeepSeek-V3.2" (arXiv 2512.02556), section 2.1, and transformers' DeepseekV32Indexer; blocks of keys:
MiniMaxM3VLIndexer; keys made of several tokens: Glm5NextTextIndexer; queries from the stream: MistralLarge4TextIndexer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Mask, Size
from tfacct.ledger.lines import RATES, Line, Matmul, Pointwise
from tfacct.ledger.workload import COMPRESSED

LEGEND = {"Nx": "heads of the indexer", "Hx": "size of an indexer's head"}


@record(kw_only=True)
class Indexer(Part):
    """Chooses `top` keys for each token: `heads` heads of `head_dim` score one key for each token, and a weighted sum
    of the scores ranks the keys.

    The rotary dimensions are as many as the attention's, the `first` or the `last` of a head, in `pairs`. `reused`: the
    layer has no indexer; it attends to the keys that the last one before it chose.
    """

    heads: Size
    head_dim: Size
    top: Size
    pairs: Literal["halves", "neighbours"] = "halves"
    rotated: Literal["first", "last"] = "first"
    reused: bool = False

    letters: ClassVar[dict[str, str]] = {"heads": "Nx", "head_dim": "Hx", "top": "Sx"}
    legend: ClassVar[dict[str, str]] = {**LEGEND, "Sx": "keys that the indexer chooses for a token"}
    cached: ClassVar[str] = "Hx"
    """Axis of what it caches of a token."""
    mask: ClassVar[Mask] = "chosen"
    """The pairs of the attention that count under a mask."""

    def sizes(self) -> dict[str, str]:
        """Return field → axis; without an indexer there is only the number of keys."""
        found = Part.sizes(self)
        return {field: letter for field, letter in found.items() if letter == "Sx"} if self.reused else found

    @property
    def cached_dim(self) -> Size:
        """Elements that it caches of a token."""
        return self.head_dim

    def scores(self, at: str, *, rotary: bool) -> Iterator[Line]:
        """Queries, keys, scores and their sum."""
        yield from self._queries(at)
        yield from self._keys(at)
        if rotary:
            yield Pointwise(f"{at}.q_rotary", "B T Nx Hr", kind="rotary")
            yield Pointwise(f"{at}.k_rotary", "B T Hr", kind="rotary")
        yield from self._ranked(at)

    def _queries(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.q_proj", "B T Rq, Rq Nx Hx -> B T Nx Hx")

    def _keys(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.k_proj", "B T D, D Hx -> B T Hx")
        yield Pointwise(f"{at}.k_norm", "B T Hx", weight="Hx", bias="Hx", kind="norm_layer")

    def _ranked(self, at: str, keys: str = "S", mask: Mask = "causal") -> Iterator[Line]:
        yield Matmul(f"{at}.scores", f"B T Nx Hx, B {keys} Hx -> B Nx T {keys}", mask=mask)
        yield Pointwise(f"{at}.act", f"B Nx T {keys}", kind="activation")
        yield Matmul(f"{at}.weights_proj", "B T D, D Nx -> B T Nx")
        yield Matmul(f"{at}.sum", f"B T Nx, B Nx T {keys} -> B T {keys}", mask=mask)


@record(kw_only=True)
class StreamIndexer(Indexer):
    """An indexer whose queries are made of the residual stream after a LayerNorm of its own; two learned numbers of
    each head multiply them by the logarithm of their position."""

    def _queries(self, at: str) -> Iterator[Line]:
        yield Pointwise(f"{at}.q_norm", "B T D", weight="D", bias="D", kind="norm_layer")
        yield Matmul(f"{at}.q_proj", "B T D, D Nx Hx -> B T Nx Hx")
        yield Pointwise(f"{at}.q_scale", "B T Nx Hx", weight="Nx", bias="Nx")


@record(kw_only=True)
class PooledIndexer(Indexer):
    """An indexer of keys made of `pool` tokens each, in every step anew from the keys and weights of all tokens. It
    chooses all tokens of a key, and with `tail` those that make no whole key yet. Nothing is rotated."""

    pool: Size
    tail: bool = True

    letters: ClassVar[dict[str, str]] = {"heads": "Nx", "head_dim": "Hx", "pool": RATES["light"]}
    legend: ClassVar[dict[str, str]] = {
        **LEGEND,
        RATES["light"]: "tokens that a lightly compressed key is made of",
        "Hy": "numbers of a token that an indexer keeps: its key, their weights and a mark of padding, 2 · Hx + 1",
    }
    cached: ClassVar[str] = "Hy"
    mask: ClassVar[Mask] = "causal"

    @property
    def cached_dim(self) -> Size:
        """Elements that it caches of a token: key, weights, a mark of padding."""
        return 2 * self.head_dim + 1

    def derived(self) -> dict[str, str]:
        """What is cached of a token."""
        return {} if self.reused else {"Hy": "2 · Hx + 1"}

    def _ranked(self, at: str, keys: str = COMPRESSED["entries"]["light"], mask: Mask = "entries") -> Iterator[Line]:
        rate = RATES["light"]
        yield Matmul(f"{at}.gate_proj", "B T D, D Hx -> B T Hx")
        yield Pointwise(f"{at}.position_bias", f"B {keys} {rate} Hx", bias=f"{rate} Hx")
        yield Pointwise(f"{at}.softmax", f"B {keys} {rate} Hx", kind="softmax")
        yield Pointwise(f"{at}.weighting", f"B {keys} {rate} Hx", kind="weighting")
        yield from Indexer._ranked(self, at, keys, mask)


@record(kw_only=True)
class BlockIndexer(Indexer):
    """Chooses the `top` blocks of `size` keys with the best key in them, the last `local` blocks up to the query's own
    among them, for each of its heads by itself; query heads are dealt out to those. No matmul depends on the choice."""

    size: Size
    local: int = 1

    letters: ClassVar[dict[str, str]] = {"heads": "Nx", "head_dim": "Hx"}
    legend: ClassVar[dict[str, str]] = LEGEND

    def _queries(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.q_proj", "B T D, D Nx Hx -> B T Nx Hx")
        yield Pointwise(f"{at}.q_norm", "B T Nx Hx", weight="Hx", kind="norm_rms")

    def _keys(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.k_proj", "B T D, D Hx -> B T Hx")
        yield Pointwise(f"{at}.k_norm", "B T Hx", weight="Hx", kind="norm_rms")

    def _ranked(self, at: str, keys: str = "S", mask: Mask = "causal") -> Iterator[Line]:
        yield Matmul(f"{at}.scores", f"B T Nx Hx, B {keys} Hx -> B Nx T {keys}", mask=mask)
