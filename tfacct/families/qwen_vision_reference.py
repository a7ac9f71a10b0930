"""The torch module of GLM's merger of patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.families import qwen_vision
from tfacct.reference.modules import Activation, LayerNorm, Linear


class GatedMerger(nn.Module):
    """A projection of concatenated neighboring patches, followed by a gated MLP."""

    def __init__(self, part: qwen_vision.GatedMerger) -> None:
        super().__init__()
        self.patches, out = part.patches, part.out
        self.join = Linear(part.patches * part.hidden, out)
        self.proj = Linear(out, out, bias=False)
        self.norm, self.norm_act = LayerNorm((out,), part.eps), Activation("gelu")
        self.gate_proj, self.up_proj = (Linear(out, part.width, bias=False) for _ in range(2))
        self.act = Activation(part.activation)
        self.down_proj = Linear(part.width, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.unflatten(x, 1, (x.shape[1] // self.patches, self.patches)).flatten(2)
        x = self.norm_act(self.norm(self.proj(self.join(x))))
        out: Tensor = self.down_proj(self.act(self.up_proj(x), self.gate_proj(x)))
        return out
