"""The torch module of Llama 4's merger of patches."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tfacct.families import vision
from tfacct.reference.modules import Activation, Linear
from tfacct.reference.rotary import in_tiles


class PixelShuffle(nn.Module):
    """Two projections of concatenated neighboring patches; learned tokens after them are not read."""

    def __init__(self, part: vision.PixelShuffle) -> None:
        super().__init__()
        self.patches, self.front, width = part.patches, part.front, part.patches * part.hidden
        self.up_proj, self.down_proj = Linear(width, part.out, bias=False), Linear(part.out, part.out, bias=False)
        self.act, self.out_act = Activation(part.activation), Activation(part.activation)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, : x.shape[1] - self.front]
        if isinstance(x.shape[1], int):  # squares of patches, of an image that is read row by row
            x = x[:, in_tiles(torch.arange(x.shape[1]), (math.isqrt(self.patches),))]
        x = torch.unflatten(x, 1, (x.shape[1] // self.patches, self.patches)).flatten(2)
        out: Tensor = self.out_act(self.down_proj(self.act(self.up_proj(x))))
        return out
