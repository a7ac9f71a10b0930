"""The reference model's AltUp and LAuReL (transformers' Gemma3nTextAltUp, Gemma3nTextLaurelBlock and Gemma3nTextModel).

Shapes: x is (batch, tokens, hidden), streams are (batch, tokens, hidden, streams).
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.architecture.parts.altup import OTHERS, STREAMS
from tfacct.reference.modules import Add, FeedForward, Linear, Product, RMSNorm, Scale, Work
from tfacct.reference.part_module import PartModule

LEAST = 1e-5
"""Smallest square of a stream's length: the class's own number."""


class Tanh(Work):
    """Numbers between −1 and 1."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)


class Innovation(Work):
    """What a block changed."""

    def forward(self, result: Tensor, predicted: Tensor) -> Tensor:
        return result - predicted


class Correct(Work):
    """What a block changed, times each stream's coefficient."""

    def forward(self, innovation: Tensor, coefficients: Tensor) -> Tensor:
        return innovation.unsqueeze(-1) * (coefficients + 1).unsqueeze(-2)


class Vector(Work):
    """Elements times a number of their own each."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class AltUp(nn.Module):
    """Predictions in front of a block, corrections behind it."""

    def __init__(self, part: parts.AltUp) -> None:
        super().__init__()
        hidden = part.hidden
        self.router_norm, self.correct_router_norm = (RMSNorm(hidden, part.eps) for _ in range(2))
        self.router, self.correct_router = (Linear(hidden, STREAMS, bias=False) for _ in range(2))
        self.correct_router_norm.weight, self.correct_router.weight = self.router_norm.weight, self.router.weight
        self.router_scale, self.correct_router_scale = Scale(1 / hidden), Scale(1 / hidden)
        self.tanh, self.correct_tanh = Tanh(), Tanh()
        self.predict_coefs = Linear(STREAMS, STREAMS * STREAMS, bias=False)
        self.correct_coefs = Linear(STREAMS, STREAMS, bias=False)
        self.predict, self.predict_add = Product(1), Add()
        self.innovation, self.correct, self.correct_add = Innovation(), Correct(), Add()
        self.out_scale = Vector(hidden)
        self.scaled = part.scaled

    def before(self, streams: Tensor) -> Tensor:
        """Predicted streams."""
        made = self.tanh(self.router(self.router_scale(self.router_norm(streams[..., 0]))))
        coefficients = torch.unflatten(self.predict_coefs(made), -1, (STREAMS, STREAMS)).transpose(-1, -2)
        out: Tensor = self.predict_add(streams, self.predict(streams, coefficients))
        return out

    def behind(self, predicted: Tensor, result: Tensor) -> tuple[Tensor, Tensor]:
        """Corrected streams, and what the layer's own rows are gated by."""
        made = self.correct_tanh(self.correct_router(self.correct_router_scale(self.correct_router_norm(result))))
        change = self.innovation(result, predicted[..., 0])
        streams = self.correct_add(predicted, self.correct(change, self.correct_coefs(made)))
        first = streams[..., 0]
        return streams, self.out_scale(first) if self.scaled else first


class Rescale(Work):
    """Streams of the length of the first one."""

    def forward(self, streams: Tensor, first: Tensor) -> Tensor:
        wanted = first.square().mean(dim=-1, keepdim=True).sqrt()
        lengths = streams.square().mean(dim=-2, keepdim=True).clamp(min=LEAST).sqrt()
        return streams * wanted.unsqueeze(-1) / lengths


class Mean(Work):
    """Mean of all streams."""

    def forward(self, streams: Tensor) -> Tensor:
        return streams.mean(dim=-1)


class AltUpStreams(nn.Module):
    """The other streams, made of the first or put together with it."""

    def __init__(self, part: parts.AltUpExpand) -> None:
        super().__init__()
        for name in OTHERS:
            self.add_module(name, Linear(part.hidden, part.hidden, bias=False))
        self.rescale = Rescale()
        self.mean = Mean() if isinstance(part, parts.AltUpMerge) else None

    def forward(self, x: Tensor) -> Tensor:
        """All streams of a vector; where they are merged, one vector of all streams."""
        read = [x] * len(OTHERS) if self.mean is None else [x[..., at + 1] for at in range(len(OTHERS))]
        first = x if self.mean is None else x[..., 0]
        made = torch.stack([getattr(self, name)(each) for name, each in zip(OTHERS, read, strict=True)], dim=-1)
        every = torch.cat((first.unsqueeze(-1), self.rescale(made, first)), dim=-1)
        return every if self.mean is None else self.mean(every)


class Laurel(PartModule):
    """A product of low rank, and what it reads."""

    def __init__(self, part: parts.Laurel) -> None:
        super().__init__()
        self.down_proj = Linear(part.hidden, part.rank, bias=False)
        self.up_proj = Linear(part.rank, part.hidden, bias=False)
        self.norm, self.add = RMSNorm(part.hidden, part.eps), Add()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.add(x, self.norm(self.up_proj(self.down_proj(x))))
        return out


class Sparsity(Work):
    """What lies above a bound, less it: of numbers spread as in a Gaussian, this share lies below."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.bound = NormalDist().inv_cdf(share)

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = x.mean(dim=-1, keepdim=True), x.std(dim=-1, keepdim=True, unbiased=False)
        return nn.functional.relu(x - (mean + spread * self.bound))


class SparseFeedForward(FeedForward):
    """A gated network, its gate cut at a bound."""

    def __init__(self, part: parts.SparseFeedForward) -> None:
        super().__init__(part)
        self.sparsity = Sparsity(part.sparsity)

    def forward(self, x: Tensor) -> Tensor:
        assert self.gate_proj is not None
        out: Tensor = self.down_proj(self.act(self.up_proj(x), self.sparsity(self.gate_proj(x))))
        return out
