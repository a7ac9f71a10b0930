"""A transformer block with weights shared by several layers: its input, and the projection of its result.

"The Zamba2 Suite" (arXiv 2411.15242), section 2; order and shapes of the matmuls: transformers' Zamba2HybridLayer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.attention import Attention
from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise

JOINED = {
    "Dj": "residual stream concatenated with the token embedding, 2 · D",
    "Ra": "rank of the adapters on shared weights",
}
BOTH = {"Dj": "2 · D"}
ALONE = {"U": "a single row, such as a class token or the gate of a shared expert"}


@record(kw_only=True)
class JoinedAttention(Attention):
    """Shared attention over the residual stream concatenated with the token embedding. `adapter`: rank of the adapters
    of queries, keys and values in each layer."""

    adapter: Size | None = None

    joined: ClassVar[bool] = True
    axis_names: ClassVar[dict[str, str]] = {**Attention.axis_names, "adapter": "Ra"}
    legend: ClassVar[dict[str, str]] = {axis: Attention.legend[axis] for axis in "DNKGH"} | JOINED

    def derived(self) -> dict[str, str]:
        """Query heads, and width of the input."""
        return self.made | BOTH

    def _projection(self, at: str, which: str, heads: str, size: str = "H", *, bias: bool) -> Iterator[Line]:
        yield Matmul(f"{at}.{which}_proj", f"B T Dj, Dj {heads} {size} -> B T {heads} {size}", bias=bias)
        if self.adapter is not None:
            yield Matmul(f"{at}.{which}_adapter_down", "B T Dj, Dj Ra -> B T Ra")
            yield Matmul(f"{at}.{which}_adapter_up", f"B T Ra, Ra {heads} H -> B T {heads} H")
            yield Pointwise(f"{at}.{which}_adapter_add", f"B T {heads} H", kind="sum")


@record(kw_only=True)
class SharedOutput(Part):
    """Projection per layer of a shared block's result; the mixer reads the sum of its result and the residual
    stream."""

    hidden: Size

    name: ClassVar[str] = "shared_out"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Do": "output width of a square matrix (= D)"}
    made: ClassVar[dict[str, str]] = {"Do": "D"}

    def lines(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.proj", "B T D, D Do -> B T Do")
