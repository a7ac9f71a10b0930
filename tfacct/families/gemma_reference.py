"""The torch modules of Gemma 3n's AltUp and LAuReL (transformers' Gemma3nTextAltUp, Gemma3nTextLaurelBlock and
Gemma3nTextModel), and of the per-layer embeddings of Gemma 3n and Gemma 4 (Gemma4TextModel).

Shapes: x is (batch, tokens, hidden), streams are (batch, tokens, hidden, streams).
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor, nn

from tfacct.families import gemma
from tfacct.families.gemma import STREAMS
from tfacct.reference.modules import (
    Activation,
    Add,
    ChannelScale,
    Embedding,
    FeedForward,
    Linear,
    Minus,
    Product,
    RMSNorm,
    Scale,
    Work,
)
from tfacct.reference.part_module import PartModule
from tfacct.reference.residual import Residual
from tfacct.reference.step import Step

LEAST = 1e-5
"""Smallest square of a residual stream's length, as in the class."""


class Correct(Work):
    """The change by a layer, times the coefficient of each residual stream."""

    def forward(self, innovation: Tensor, coefficients: Tensor) -> Tensor:
        return innovation.unsqueeze(-1) * (coefficients + 1).unsqueeze(-2)


class AltUp(nn.Module):
    """Predictions before a layer, corrections after it."""

    def __init__(self, part: gemma.AltUp) -> None:
        super().__init__()
        hidden = part.hidden
        self.router_norm, self.correct_router_norm = (RMSNorm(hidden, part.eps) for _ in range(2))
        self.router, self.correct_router = (Linear(hidden, STREAMS, bias=False) for _ in range(2))
        self.correct_router_norm.weight, self.correct_router.weight = self.router_norm.weight, self.router.weight
        self.router_scale, self.correct_router_scale = Scale(1 / hidden), Scale(1 / hidden)
        self.tanh, self.correct_tanh = Activation("tanh"), Activation("tanh")
        self.predict_coefs = Linear(STREAMS, STREAMS * STREAMS, bias=False)
        self.correct_coefs = Linear(STREAMS, STREAMS, bias=False)
        self.predict, self.predict_add = Product(1), Add()
        self.innovation, self.correct, self.correct_add = Minus(), Correct(), Add()
        self.out_scale = ChannelScale(hidden)
        self.scaled = part.scaled

    def before(self, streams: Tensor) -> Tensor:
        """Predicted residual streams."""
        made = self.tanh(self.router(self.router_scale(self.router_norm(streams[..., 0]))))
        coefficients = torch.unflatten(self.predict_coefs(made), -1, (STREAMS, STREAMS)).transpose(-1, -2)
        out: Tensor = self.predict_add(streams, self.predict(streams, coefficients))
        return out

    def after(self, predicted: Tensor, result: Tensor) -> tuple[Tensor, Tensor]:
        """Corrected residual streams, and the gate of the layer's own inputs."""
        made = self.correct_tanh(self.correct_router(self.correct_router_scale(self.correct_router_norm(result))))
        change = self.innovation(result, predicted[..., 0])
        streams = self.correct_add(predicted, self.correct(change, self.correct_coefs(made)))
        first = streams[..., 0]
        return streams, self.out_scale(first) if self.scaled else first


class Rescale(Work):
    """Residual streams rescaled to the length of the first one."""

    def forward(self, streams: Tensor, first: Tensor) -> Tensor:
        wanted = first.square().mean(dim=-1, keepdim=True).sqrt()
        lengths = streams.square().mean(dim=-2, keepdim=True).clamp(min=LEAST).sqrt()
        return streams * wanted.unsqueeze(-1) / lengths


class Mean(Work):
    """Mean of all residual streams."""

    def forward(self, streams: Tensor) -> Tensor:
        return streams.mean(dim=-1)


class AltUpExpand(nn.Module):
    """Residual streams except the first."""

    def __init__(self, part: gemma.AltUpExpand) -> None:
        super().__init__()
        for name in gemma.OTHERS:
            self.add_module(name, Linear(part.hidden, part.hidden, bias=False))
        self.rescale = Rescale()

    def forward(self, x: Tensor) -> Tensor:
        """All residual streams from the first one."""
        return self.joined(x, [x] * len(gemma.OTHERS))

    def joined(self, first: Tensor, read: list[Tensor]) -> Tensor:
        """The first residual stream, and the projections of the others."""
        made = torch.stack([getattr(self, name)(each) for name, each in zip(gemma.OTHERS, read, strict=True)], dim=-1)
        return torch.cat((first.unsqueeze(-1), self.rescale(made, first)), dim=-1)


class AltUpMerge(AltUpExpand):
    """One residual stream from all."""

    def __init__(self, part: gemma.AltUpMerge) -> None:
        super().__init__(part)
        self.mean = Mean()

    def forward(self, x: Tensor) -> Tensor:
        """Mean of all residual streams."""
        out: Tensor = self.mean(self.joined(x[..., 0], [x[..., at + 1] for at in range(len(gemma.OTHERS))]))
        return out


class AltUpResidual(Residual):
    """A result added to all residual streams but the first."""


class Laurel(PartModule):
    """A low-rank projection plus its input."""

    def __init__(self, part: gemma.Laurel) -> None:
        super().__init__()
        self.down_proj = Linear(part.hidden, part.rank, bias=False)
        self.up_proj = Linear(part.rank, part.hidden, bias=False)
        self.norm, self.add = RMSNorm(part.hidden, part.eps), Add()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.add(x, self.norm(self.up_proj(self.down_proj(x))))
        return out


class Sparsity(Work):
    """Excess over a threshold, which this share of normally distributed values does not reach."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.bound = NormalDist().inv_cdf(share)

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = x.mean(dim=-1, keepdim=True), x.std(dim=-1, keepdim=True, unbiased=False)
        return nn.functional.relu(x - (mean + spread * self.bound))


class SparseFeedForward(FeedForward):
    """A gated MLP with a threshold on its gate."""

    def __init__(self, part: gemma.SparseFeedForward) -> None:
        super().__init__(part)
        self.sparsity = Sparsity(part.sparsity)

    def forward(self, x: Tensor) -> Tensor:
        assert self.gate_proj is not None
        out: Tensor = self.down_proj(self.act(self.up_proj(x), self.sparsity(self.gate_proj(x))))
        return out


class PerLayerProjection(nn.Module):
    """Per-layer inputs, (batch, tokens, layers, width), from token embeddings only."""

    def __init__(self, part: gemma.PerLayerProjection) -> None:
        super().__init__()
        self.sizes = part.layers, part.width
        self.project = Linear(part.hidden, part.layers * part.width, bias=False)
        self.project_scale = Scale(part.hidden**-0.5)
        self.norm = RMSNorm(part.width, part.eps)

    def rows(self, _tokens: Tensor, x: Tensor) -> Tensor:
        """Rows of all layers."""
        rows: Tensor = self.norm(torch.unflatten(self.project_scale(self.project(x)), -1, self.sizes))
        return rows


class PerLayerEmbedding(Embedding):
    """Per-layer inputs, (batch, tokens, layers, width), from tokens and their embeddings."""

    def __init__(self, part: gemma.PerLayerEmbedding) -> None:
        super().__init__(part.vocab, part.layers * part.width)
        self.sizes = part.layers, part.width
        self.scale = Scale(part.width**0.5)
        self.project = Linear(part.hidden, part.layers * part.width, bias=False)
        self.project_scale = Scale(part.hidden**-0.5)
        self.norm = RMSNorm(part.width, part.eps)
        self.add, self.sum_scale = Add(), Scale(2.0**-0.5)

    def rows(self, tokens: Tensor, x: Tensor) -> Tensor:
        """Rows of all layers."""
        embedded = self.scale(torch.unflatten(self(tokens), -1, self.sizes))
        made = self.norm(torch.unflatten(self.project_scale(self.project(x)), -1, self.sizes))
        rows: Tensor = self.sum_scale(self.add(made, embedded))
        return rows


class PerLayerInput(PartModule):
    """The addition of a layer's own inputs."""

    takes = ("step",)

    def __init__(self, part: gemma.PerLayerInput) -> None:
        super().__init__()
        self.gate_proj = Linear(part.hidden, part.width, bias=False)
        self.act = Activation(part.activation)
        self.up_proj = Linear(part.width, part.hidden, bias=False)
        self.number = 0

    def forward(self, x: Tensor, step: Step) -> Tensor:
        assert step.per_layer is not None
        out: Tensor = self.up_proj(self.act(self._of_layer(step.per_layer), self.gate_proj(x)))
        return out

    def _of_layer(self, rows: Tensor) -> Tensor:
        """A view of the layer's own inputs: those of the first layer if the number of layers is a symbol, because a
        proof may not assume that there are more."""
        return rows[:, :, self.number if isinstance(rows.shape[2], int) else 0]
