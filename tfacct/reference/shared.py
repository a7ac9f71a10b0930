"""The reference model's parts of a block that several layers share: adapters beside its weights, and the product back.

"The Zamba2 Suite" (arXiv 2411.15242), section 2.
"""

from __future__ import annotations

from torch import Tensor

from tfacct.architecture import parts
from tfacct.reference.modules import Add, FeedForward, Linear
from tfacct.reference.part_module import PartModule


class SharedOutput(PartModule):
    """Product of what the shared block made."""

    def __init__(self, part: parts.SharedOutput) -> None:
        super().__init__()
        self.proj = Linear(part.hidden, part.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.proj(x)
        return out


class AdaptedFeedForward(FeedForward):
    """A gated network, to whose first two products those of an adapter are added; the adapter's first is of both."""

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
        out: Tensor = self.down_proj(self.act(up, gate))
        return out
