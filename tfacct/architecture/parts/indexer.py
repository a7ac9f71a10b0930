"""Indexers, which choose the keys that a token attends to (sparse attention).

"DeepSeek-V3.2" (arXiv 2512.02556), section 2.1, and transformers' DeepseekV32Indexer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Mask, Size
from tfacct.ledger.lines import Line, Matmul, Pointwise

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

    axis_names: ClassVar[dict[str, str]] = {"heads": "Nx", "head_dim": "Hx", "top": "Sx"}
    legend: ClassVar[dict[str, str]] = {**LEGEND, "Sx": "keys that the indexer chooses for a token"}
    cached: ClassVar[str] = "Hx"
    """Axis of what it caches of a token."""
    mask: ClassVar[Mask] = "chosen"
    """The pairs of the attention that count under a mask."""

    def sizes(self) -> dict[str, str]:
        """Return field → axis; without an indexer there is only the number of keys."""
        found = Part.sizes(self)
        return {field: axis for field, axis in found.items() if axis == "Sx"} if self.reused else found

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
