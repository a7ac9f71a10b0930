"""Indexers: choice of the keys that a token attends to (sparse attention).

"DeepSeek-V3.2" (arXiv 2512.02556), section 2.1, and transformers' DeepseekV32Indexer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Mask, Size
from tfacct.ledger.lines import Line, Matmul, Pointwise

LEGEND = {"Nx": "heads of the indexer", "Hx": "head size of the indexer"}


@record(kw_only=True)
class Indexer(Part):
    """Chooses `top` keys for each token: `heads` heads of `head_dim` score one key per token, and keys are ranked by a
    weighted sum of the scores.

    It has as many rotary dimensions as the attention, the `first` or `last` of a head, in `pairs`. `reused`: the layer
    has no indexer and uses the keys chosen by the last one before it.
    """

    heads: Size
    head_dim: Size
    top: Size
    pairs: Literal["halves", "neighbours"] = "halves"
    rotated: Literal["first", "last"] = "first"
    reused: bool = False

    axis_names: ClassVar[dict[str, str]] = {"heads": "Nx", "head_dim": "Hx", "top": "Sx"}
    legend: ClassVar[dict[str, str]] = {**LEGEND, "Sx": "keys that the indexer selects per token"}
    cached: ClassVar[str] = "Hx"
    """Axis of the elements cached per token."""
    mask: ClassVar[Mask] = "chosen"
    """Mask of the attention that uses the indexer."""

    def sizes(self) -> dict[str, str]:
        """Return field → axis; only the number of keys if the indexer is reused."""
        found = Part.sizes(self)
        return {field: axis for field, axis in found.items() if axis == "Sx"} if self.reused else found

    @property
    def cached_dim(self) -> Size:
        """Number of elements cached per token."""
        return self.head_dim

    def scores(self, at: str, *, rotary: bool) -> Iterator[Line]:
        """Lines of queries, keys, scores and their weighted sum."""
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
