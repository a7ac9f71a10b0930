"""The reference model's parts of layers with shared weights: adapters, and the output projection.

"The Zamba2 Suite" (arXiv 2411.15242), section 2.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tfacct.architecture import parts
from tfacct.reference.attention import Attention
from tfacct.reference.modules import Add, FeedForward, Linear
from tfacct.reference.part_module import PartModule
from tfacct.reference.rotary import Angles


class SharedOutput(PartModule):
    """Projection of the shared layer's output."""

    def __init__(self, part: parts.SharedOutput) -> None:
        super().__init__()
        self.proj = Linear(part.hidden, part.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x)


class AdaptedFeedForward(FeedForward):
    """A gated MLP with adapters on its first two projections; both share the adapter's first matrix."""

    def __init__(self, part: parts.AdaptedFeedForward) -> None:
        super().__init__(part)
        rank = part.adapter
        self.adapter_down = Linear(part.hidden, rank, bias=False)
        self.gate_adapter_up = Linear(rank, part.width, bias=False)
        self.up_adapter_up = Linear(rank, part.width, bias=False)
        self.gate_adapter_add, self.up_adapter_add = Add(), Add()

    def forward(self, x: Tensor) -> Tensor:
        assert self.gate_proj is not None
        low = self.adapter_down(x)
        gate = self.gate_adapter_add(self.gate_proj(x), self.gate_adapter_up(low))
        up = self.up_adapter_add(self.up_proj(x), self.up_adapter_up(low))
        return self.down_proj(self.act(up, gate))


class JoinedAttention(Attention):
    """Attention with adapters on queries, keys and values."""

    def __init__(self, part: parts.JoinedAttention, angles: Angles | None, *, fused: bool, keep_all: bool) -> None:
        super().__init__(part, angles, fused=fused, keep_all=keep_all)
        self.adapted = part.adapter is not None
        rank: Any = part.adapter
        sizes = {"q": self.queries, "k": self.keys, "v": part.kv_heads * self.value_dim}
        if self.adapted:
            for which, size in sizes.items():
                self.add_module(f"{which}_adapter_down", Linear(2 * part.hidden, rank, bias=False))
                self.add_module(f"{which}_adapter_up", Linear(rank, size, bias=False))
                self.add_module(f"{which}_adapter_add", Add())

    def _qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super()._qkv(x)
        if not self.adapted:
            return q, k, v
        return self._added("q", x, q), self._added("k", x, k), self._added("v", x, v)

    def _added(self, which: str, x: Tensor, made: Tensor) -> Tensor:
        down, up, add = (self.get_submodule(f"{which}_adapter_{name}") for name in ("down", "up", "add"))
        return add(made, up(down(x)))
