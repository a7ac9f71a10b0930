"""The reference model's per-layer embeddings (transformers' Gemma4TextModel, `project_per_layer_inputs`)."""

from __future__ import annotations

import torch
from torch import Tensor

from tfacct.architecture import parts
from tfacct.reference.modules import Activation, Add, Embedding, Linear, RMSNorm, Scale
from tfacct.reference.part_module import PartModule
from tfacct.reference.step import Step


class PerLayerProjection(torch.nn.Module):
    """Rows of every layer, (batch, tokens, layers, width), from the vectors of tokens alone."""

    def __init__(self, part: parts.PerLayerEmbedding) -> None:
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
    """Rows of every layer, (batch, tokens, layers, width), from the tokens and their vectors."""

    def __init__(self, part: parts.PerLayerEmbedding) -> None:
        assert part.vocab is not None
        super().__init__(part.vocab, part.layers * part.width)
        self.sizes = part.layers, part.width
        self.scale = Scale(part.width**0.5)
        self.project = Linear(part.hidden, part.layers * part.width, bias=False)
        self.project_scale = Scale(part.hidden**-0.5)
        self.norm = RMSNorm(part.width, part.eps)
        self.add, self.sum_scale = Add(), Scale(2.0**-0.5)

    def rows(self, tokens: Tensor, x: Tensor) -> Tensor:
        """Rows of all layers."""
        own = self.scale(torch.unflatten(self(tokens), -1, self.sizes))
        made = self.norm(torch.unflatten(self.project_scale(self.project(x)), -1, self.sizes))
        rows: Tensor = self.sum_scale(self.add(made, own))
        return rows


class PerLayerInput(PartModule):
    """What a layer adds of its own rows."""

    takes = ("step",)

    def __init__(self, part: parts.PerLayerInput) -> None:
        super().__init__()
        self.gate_proj = Linear(part.hidden, part.width, bias=False)
        self.act = Activation(part.activation)
        self.up_proj = Linear(part.width, part.hidden, bias=False)
        self.number = 0

    def forward(self, x: Tensor, step: Step) -> Tensor:
        assert step.per_layer is not None
        out: Tensor = self.up_proj(self.act(self._own(step.per_layer), self.gate_proj(x)))
        return out

    def _own(self, rows: Tensor) -> Tensor:
        """A view of the layer's own rows. Where a symbol counts the layers, the first ones stand for any: that there
        are others is not assumed of it."""
        return rows[:, :, self.number if isinstance(rows.shape[2], int) else 0]
