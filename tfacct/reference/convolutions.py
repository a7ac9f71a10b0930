"""The reference model's convolutions of audio, each unfolded into one matmul."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.modules import Activation, Linear


class Stem(nn.Module):
    """Two convolutions over audio frames, (batch, bins, frames), each unfolded into one matmul and followed by a
    GELU."""

    def __init__(self, part: parts.Stem) -> None:
        super().__init__()
        self.stride, self.every = part.STRIDE, part.every
        self.conv1 = Linear(part.bins * part.KERNEL, part.hidden)
        self.act1, self.act2 = Activation("gelu"), Activation("gelu")
        self.conv2 = Linear(part.hidden * part.KERNEL, part.hidden)

    def forward(self, frames: Tensor) -> Tensor:
        if self.every is None or not isinstance(frames.shape[2], int):  # under symbols the shapes are the same
            return self.convolved(frames)
        chunks = torch.unflatten(frames, 2, (-1, self.stride * self.every)).transpose(1, 2)
        rows = self.convolved(chunks.flatten(0, 1))
        return torch.unflatten(rows, 0, chunks.shape[:2]).flatten(1, 2)

    def convolved(self, frames: Tensor) -> Tensor:
        """Positions of frames that attend to one another."""
        x = frames.transpose(1, 2)
        count = x.shape[1]
        nothing = torch.zeros_like(x.narrow(1, 0, 1))
        around = torch.cat((nothing, x, nothing), dim=1)
        seen = torch.stack([around.narrow(1, first, count) for first in range(3)], dim=-1)
        x = self.act1(self.conv1(seen.flatten(2)))
        even, odd = torch.unflatten(x, 1, (count // self.stride, self.stride)).unbind(2)
        before = torch.cat((torch.zeros_like(odd.narrow(1, 0, 1)), odd), dim=1).narrow(1, 0, even.shape[1])
        return self.act2(self.conv2(torch.stack((before, even, odd), dim=-1).flatten(2)))

    def widened(self, rows: Tensor) -> Tensor:
        """Embeddings after the norm, unchanged."""
        return rows
