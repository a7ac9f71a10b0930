"""First and last parts of the reference model's image encoder: patches, poolers, mergers and projectors.

Shapes: patches are (batch, patches, channels · pixels), x is (batch, tokens, hidden).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.architecture.parts import projector
from tfacct.reference.attention import Softmax, by_head
from tfacct.reference.modules import (
    Activation,
    Add,
    FeedForward,
    LayerNorm,
    Linear,
    Product,
    RMSNorm,
    Scale,
    Vector,
    Work,
    through,
)


class Token(nn.Module):
    """Learned vectors without an input."""

    def __init__(self, count: int, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, hidden))

    def forward(self, batch: int) -> Tensor:
        return self.weight.unsqueeze(0).expand(batch, -1, -1)


class Patches(nn.Module):
    """A matmul of every patch, with the class token before them."""

    def __init__(self, part: parts.Patches) -> None:
        super().__init__()
        self.project = Linear(part.channels * part.pixels, part.hidden, bias=part.bias)
        self.norm = None if part.norm_eps is None else RMSNorm(part.hidden, part.norm_eps)
        if part.front is not None:
            further = 1 if part.taught else part.further
            self.add_module("class", Token(part.front if further is None else 1, part.hidden))
            self.further = None if further is None else Token(further, part.hidden)
        self.mask = Vector(part.hidden) if part.masked else None
        self.last = part.last

    def forward(self, patches: Tensor) -> Tensor:
        rows = through(self.norm, self.project(patches))
        front = self._modules.get("class")
        if front is None:
            return rows
        tokens = front(rows.shape[0])
        if self.further is not None:
            tokens = torch.cat((tokens, self.further(rows.shape[0])), dim=1)
        return torch.cat((rows, tokens) if self.last else (tokens, rows), dim=1)

    def widened(self, rows: Tensor) -> Tensor:
        """Embeddings after the norm, unchanged."""
        return rows


class TokenPooler(nn.Module):
    """The vector of one position per sequence; the mean of all, of all but the first, or of the first two; or every
    position. The end of a text is always its last position."""

    def __init__(self, part: parts.TokenPooler) -> None:
        super().__init__()
        self.each = part.reads == "each"
        self.at, self.mean = 0 if part.reads == "first" else -1, part.reads in ("both", "mean", "average")
        self.front = slice(2) if part.reads == "both" else slice(1 if part.reads == "mean" else 0, None)
        self.norm = None if part.norm_eps is None else LayerNorm((part.hidden,), part.norm_eps)
        self.project = None if part.width is None else Linear(part.hidden, part.width, bias=part.bias)
        wide = part.hidden if part.width is None else part.width
        self.then = None if part.then is None else Linear(wide, part.then, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        vector = x[:, self.front].mean(dim=1) if self.mean else x[:, self.at]
        if self.each:
            vector = x
        vector = through(self.project, through(self.norm, vector))
        return vector if self.then is None else self.then(vector[:, 0])


class Merger(nn.Module):
    """Neighboring patches, concatenated, and two matmuls. Patches to be merged are consecutive."""

    def __init__(self, part: parts.Merger) -> None:
        super().__init__()
        self.patches, self.joined = part.patches, part.joined
        width = part.patches * part.hidden
        normed = width if part.joined else part.hidden
        self.norm = LayerNorm((normed,), part.eps) if part.norm == "layer" else RMSNorm(normed, part.eps)
        self.up_proj, self.down_proj = Linear(width, width), Linear(width, part.out)
        self.act = Activation(part.activation)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.joined else self.norm(x)
        x = torch.unflatten(x, 1, (x.shape[1] // self.patches, self.patches)).flatten(2)
        x = self.norm(x) if self.joined else x
        return self.down_proj(self.act(self.up_proj(x)))


class Shares(Work):
    """Contribution of each neighbor to the mean."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, 1, (x.shape[1] // self.count, self.count)) / self.count


class Averaged(nn.Module):
    """Means of neighboring positions, and the layers after them."""

    def __init__(self, part: parts.Averaged) -> None:
        super().__init__()
        self.average = Shares(part.patches)
        self.steps: list[nn.Module] = []
        if part.kind in ("normed", "projected"):
            self._put("norm", LayerNorm((part.hidden,), 1e-5))
        if part.kind in ("scaled", "standardized"):
            self._put("scale", Scale(part.hidden**0.5))
        if part.kind == "standardized":
            self._put("standardize", Scale(1.0))
        if part.out is not None:
            self._put("proj", Linear(part.hidden, part.out))
            self.ends = Token(2, part.out)  # which the composite adds around the results

    def _put(self, name: str, module: nn.Module) -> None:
        self.add_module(name, module)
        self.steps.append(module)

    def forward(self, x: Tensor) -> Tensor:
        x = self.average(x).sum(dim=2)
        for step in self.steps:
            x = step(x)
        return x


class Halves(Work):
    """One half of each row, after an activation, times the other half."""

    def forward(self, x: Tensor) -> Tensor:
        one, other = x.chunk(2, dim=-1)
        return one * nn.functional.silu(other)


class Projector(nn.Module):
    """The steps of a projector, in order, with their names in the class."""

    def __init__(self, part: projector.Projector) -> None:
        super().__init__()
        self.steps, self.layers = part.steps, part.layers
        for step in part.steps:
            match step:
                case projector.Linear():
                    self._put(step.name, Linear(step.inputs, step.outputs, bias=step.bias))
                case projector.Scaling():
                    scaling = LayerNorm((step.width,), 1e-5) if step.bias else RMSNorm(step.width, 1e-6)
                    self._put(step.name, scaling)
                case projector.Learned():
                    self._put(step.name, Token(1, *step.shape))
                case projector.Activated():
                    self._put(step.name, Halves() if step.gated else Activation("gelu"))
                case projector.Joined() if step.averaged is not None:
                    self._put("average", Shares(step.rows))

    def _put(self, name: str, module: nn.Module) -> None:
        """Registers a module under a dotted name."""
        at: nn.Module = self
        *outer, last = name.split(".")
        for one in outer:
            if not hasattr(at, one):
                at.add_module(one, nn.Module())
            at = getattr(at, one)
        at.add_module(last, module)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x] * self.layers, dim=-1)
        for step in self.steps:
            match step:
                case projector.Dropped():
                    x = x[:, step.rows :]
                case projector.Joined() if step.averaged is not None:
                    x = self.get_submodule("average")(x).sum(dim=2)
                case projector.Joined():
                    x = torch.unflatten(x, 1, (x.shape[1] // step.rows, step.rows)).flatten(2)
                case projector.Learned():
                    pass  # at the end of a row of an image, between others
                case _:
                    x = self.get_submodule(step.name)(x)
        return x


class AttentionPooler(nn.Module):
    """Attention of a learned query to all positions, then a norm and an MLP."""

    def __init__(self, part: parts.AttentionPooler) -> None:
        super().__init__()
        self.heads, self.head_dim, width = part.heads, part.head_dim, part.heads * part.head_dim
        self.probe = Token(part.probes, part.hidden)
        self.q_proj, self.k_proj, self.v_proj = (Linear(part.hidden, width) for _ in range(3))
        self.scores, self.values = Product(1), Product(1)
        self.softmax = Softmax(part.head_dim**-0.5)
        self.o_proj = Linear(width, part.hidden)
        self.norm = LayerNorm((part.hidden,), part.eps)
        mlp = parts.FeedForward(hidden=part.hidden, width=part.width, bias=True, activation=part.activation)
        self.mlp, self.add = FeedForward(mlp), Add()

    def forward(self, x: Tensor) -> Tensor:
        q = by_head(self.q_proj(self.probe(x.shape[0])), self.heads, self.head_dim)
        k, v = (by_head(made(x), self.heads, self.head_dim) for made in (self.k_proj, self.v_proj))
        mixed = self.values(self.softmax(self.scores(q, k.transpose(2, 3)), None), v)
        read = self.o_proj(mixed.transpose(1, 2).flatten(2))
        result: Tensor = self.add(read, self.mlp(self.norm(read)))
        return result[:, 0]
