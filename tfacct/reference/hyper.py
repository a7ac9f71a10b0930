"""The reference model's hyper-connections (transformers' DeepseekV4HyperConnection and DeepseekV4HyperHead).

Shapes: x is (batch, tokens, hidden), streams are (batch, tokens, streams, hidden).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.architecture.parts.hyper import PARTS, PARTS_UNMIXED
from tfacct.reference.modules import Add, Linear, PlainRMSNorm, Product, Vector, Work


class Base(Work):
    """Weights, each kind times its factor, plus a constant."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(count))

    def forward(self, weights: list[Tensor], factors: Tensor) -> Tensor:
        each = [kind * factor for kind, factor in zip(weights, factors.unbind(0), strict=True)]
        return torch.cat(each, dim=-1) + self.bias


def square(numbers: Tensor, count: int) -> Tensor:
    """A square matrix per token. For a symbol, torch would keep a quotient of its square, so a proof gets an empty
    matrix of this shape."""
    if isinstance(count, torch.SymInt):
        return numbers.narrow(-1, 0, 1).unsqueeze(-1).expand(*numbers.shape[:-1], count, count)
    return torch.unflatten(numbers, -1, (count, count))


class Squashed(Work):
    """Bounded weights of input and result, and a matrix over the residual streams with rows and columns that sum to
    approximately 1."""

    def __init__(self, part: parts.HyperConnection) -> None:
        super().__init__()
        self.streams, self.rounds, self.eps = part.streams, part.rounds, part.eps
        self.most = 2.0 if part.bound is None else part.bound

    def forward(self, reads: Tensor, gives: Tensor, mixes: Tensor | None = None) -> Tensor:
        if mixes is None:
            return torch.cat((torch.sigmoid(reads), self.most * torch.sigmoid(gives)), dim=-1) + self.eps
        matrix = torch.softmax(square(mixes, self.streams), dim=-1) + self.eps
        matrix = matrix / (matrix.sum(dim=-2, keepdim=True) + self.eps)
        read = not mixes.is_meta or torch.is_grad_enabled()  # without values, one round is enough for the shapes
        for _ in range(self.rounds - 1 if read else 0):
            matrix = matrix / (matrix.sum(dim=-1, keepdim=True) + self.eps)
            matrix = matrix / (matrix.sum(dim=-2, keepdim=True) + self.eps)
        return torch.cat(
            (torch.sigmoid(reads) + self.eps, self.most * torch.sigmoid(gives), matrix.flatten(-2)), dim=-1
        )


class Summed(Work):
    """A weighted sum of the residual streams."""

    def forward(self, streams: Tensor, weights: Tensor) -> Tensor:
        return (weights.unsqueeze(-1) * streams).sum(dim=2)


class Spread(Work):
    """A result times one weight per residual stream."""

    def forward(self, result: Tensor, weights: Tensor) -> Tensor:
        return weights.unsqueeze(-1) * result.unsqueeze(-2)


class HyperConnection(nn.Module):
    """A sublayer's input from all residual streams, and the streams after it."""

    def __init__(self, part: parts.HyperConnection) -> None:
        super().__init__()
        count = part.streams
        self.sizes = [count, count, count * count] if part.mixes else [count, count]
        every = 2 * count + count * count if part.mixes else 2 * count
        self.norm = PlainRMSNorm(count * part.hidden, part.norm_eps)
        self.weights = Linear(count * part.hidden, every, bias=False)
        self.factors = Vector(PARTS if part.mixes else PARTS_UNMIXED)
        self.base, self.squashed = Base(every), Squashed(part)
        self.read, self.result, self.add = Summed(), Spread(), Add()
        self.mix = Product(1) if part.mixes else None

    def before(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The sublayer's input, the weights of its result, and the matrix that mixes the residual streams, if any."""
        made = torch.split(self.weights(self.norm(streams.flatten(2))), self.sizes, dim=-1)
        squashed = self.squashed(*torch.split(self.base(list(made), self.factors.weight), self.sizes, dim=-1))
        reads, gives, *mixes = torch.split(squashed, self.sizes, dim=-1)
        return self.read(streams, reads), gives, square(mixes[0], self.sizes[0]) if mixes else None

    def after(self, streams: Tensor, result: Tensor, gives: Tensor, mixes: Tensor | None) -> Tensor:
        """Residual streams after the sublayer."""
        # first, as in the class: recomputation of a layer ends with its last matmul
        spread = self.result(result, gives)
        if self.mix is not None and mixes is not None:
            streams = self.mix(mixes.transpose(-1, -2), streams)
        return self.add(spread, streams)


class Bounded(Work):
    """Bounded weights."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) + self.eps


class HyperHead(nn.Module):
    """One residual stream from all."""

    def __init__(self, part: parts.HyperHead) -> None:
        super().__init__()
        count = part.streams
        self.norm = PlainRMSNorm(count * part.hidden, part.norm_eps)
        self.weights, self.factor = Linear(count * part.hidden, count, bias=False), Vector(1)
        self.base, self.squashed, self.sum = Base(count), Bounded(part.eps), Summed()

    def forward(self, streams: Tensor) -> Tensor:
        made = self.weights(self.norm(streams.flatten(2)))
        return self.sum(streams, self.squashed(self.base([made], self.factor.weight)))


class Mean(Work):
    """The mean of the residual streams."""

    def forward(self, streams: Tensor) -> Tensor:
        return streams.mean(dim=2)


class HyperMean(nn.Module):
    """The mean of all residual streams."""

    def __init__(self, _part: parts.HyperMean) -> None:
        super().__init__()
        self.mean = Mean()

    def forward(self, streams: Tensor) -> Tensor:
        return self.mean(streams)
