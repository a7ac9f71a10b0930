"""Embeddings added to token embeddings: positions, learned or sinusoidal, and segments."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.modules import Add, Embedding, Work
from tfacct.reference.rotary import in_tiles


class Positions(Embedding):
    """A learned position embedding, added to the token embedding."""

    def __init__(self, part: parts.Positions) -> None:
        super().__init__(part.rows, part.hidden)
        self.offset, self.rows, self.add = part.offset, part.rows, Add()
        self.weight.requires_grad = part.trained
        self.tiles = part.tiles
        self.resample = None if part.tiles is None else Resampled()

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:  # type: ignore[override]
        if self.resample is not None and self.tiles is not None:
            places = in_tiles(positions, self.tiles).to(x.device).clamp(max=self.rows - 1)
            return self.add(x, self.resample(super().forward(places), x))
        return self.add(x, super().forward(positions + self.offset))


class ClassAndPatches(Embedding):
    """A position embedding of the class token and of patches; learned tokens between them have none."""

    def __init__(self, part: parts.Positions, front: int) -> None:
        super().__init__(part.rows, part.hidden)
        self.between, self.class_add, self.add = front, Add(), Add()

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:  # type: ignore[override]
        first, others, patches = x[:, :1], x[:, 1 : self.between], x[:, self.between :]
        class_token = self.class_add(first, super().forward(positions[:1]))
        placed = self.add(patches, super().forward(positions[1 : positions.shape[0] - self.between + 1]))
        return torch.cat((class_token, others, placed), dim=1)


class Crossed(nn.Module):
    """Sum of a column embedding and a row embedding for each patch of a square image."""

    def __init__(self, part: parts.Positions) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2, part.rows, part.hidden))
        self.tiles, self.rows = part.tiles, part.rows
        self.join, self.add = Add(), Add()

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        places = positions if self.tiles is None else in_tiles(positions, self.tiles)
        places = places.to(x.device)
        side = max(math.isqrt(places.shape[0]), 1) if isinstance(places.shape[0], int) else 1
        column, row = (place.clamp(max=self.rows - 1) for place in (places % side, places // side))
        each = (nn.functional.embedding(at, place) for at, place in zip((column, row), self.weight, strict=True))
        found = self.join(*(rows.unsqueeze(0).expand(x.shape[0], -1, -1) for rows in each))
        return self.add(x, found)


class Resampled(Work):
    """Position embeddings of the patches of each image, not resampled if an image has as many patches as the embedding
    has rows."""

    def forward(self, rows: Tensor, like: Tensor) -> Tensor:
        return rows.unsqueeze(0).expand(like.shape[0], -1, -1).clone()


class Sines(nn.Module):
    """Sines and cosines of the positions, computed and added to the token embedding. Each audio chunk of `every`
    positions starts at position 0.

    Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762), section 3.5. `sines_then_cosines`, as in
    transformers' M2M100SinusoidalPositionalEmbedding: the rates end at 1 / 10,000 and an odd last element is 0. At the
    paper's rates, as in CTRLModel, an odd last element is a sine.
    """

    def __init__(self, part: parts.Positions, every: int | None = None) -> None:
        super().__init__()
        self.add, self.offset, hidden = Add(), part.offset, part.hidden
        self.odd_one, self.every = 0, every
        if torch.get_default_device().type == "meta" or not isinstance(hidden, int):
            self.rates, self.phases = torch.empty(hidden), torch.empty(hidden)
        elif part.layout == "ctrl_sines":
            numbers = torch.cat((torch.arange(0, hidden, 2), torch.arange(0, hidden - 1, 2))).double()
            self.rates = 10_000 ** (-numbers / hidden)
            self.phases = (torch.arange(hidden) >= (hidden + 1) // 2) * (torch.pi / 2)
        elif part.layout == "sines_then_cosines":
            half, self.odd_one = hidden // 2, hidden % 2
            numbers = torch.arange(half, dtype=torch.float64)
            self.rates = (10_000 ** (-numbers / (half - 1))).repeat(2)
            self.phases = torch.cat((numbers * 0, numbers * 0 + torch.pi / 2))
        else:
            numbers = torch.arange(hidden, dtype=torch.float64)
            odd = numbers.remainder(2)
            self.rates, self.phases = 10_000 ** (-(numbers - odd) / hidden), odd * (torch.pi / 2)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        positions = positions if self.every is None else positions % self.every
        rates, phases = self.rates.to(positions.device), self.phases.to(positions.device)
        sines = torch.sin((positions.unsqueeze(1) + self.offset) * rates + phases)
        if self.odd_one:
            sines = torch.cat((sines, sines.new_zeros(sines.shape[0], 1)), dim=1)
        return self.add(x, sines.to(x.device, x.dtype))


class AddedEmbedding(nn.Module):
    """An embedding added to the token embedding: it reads the sum so far, and the positions."""


class Segments(Embedding, AddedEmbedding):
    """A learned segment embedding, added to the token embedding: all tokens are in the first segment."""

    def __init__(self, part: parts.Segments) -> None:
        super().__init__(part.rows, part.hidden)
        self.add = Add()

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:  # type: ignore[override]
        return self.add(x, super().forward(positions.to(x.device) * 0))
