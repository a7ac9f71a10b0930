"""The reference model's parts of MobileBERT."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.families.rare import mobilebert
from tfacct.reference.attention import Heads, Softmax
from tfacct.reference.modules import Activation, Add, Embedding, Head, LayerNorm, Linear, Tokens, Work
from tfacct.reference.part_module import PartModule


class ScaleAndShift(Work):
    """Scale and shift, in place of a norm (transformers' NoNorm)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.empty(hidden)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


class NoNorm(ScaleAndShift):
    """The same, of the hidden size."""

    def __init__(self, part: mobilebert.NoNorm) -> None:
        super().__init__(part.hidden)


class TrigramEmbedding(Tokens):
    """Embeddings of the next token, of a token and of the one before, concatenated; zeros where there is none."""

    def __init__(self, part: mobilebert.TrigramEmbedding) -> None:
        super().__init__(part)
        assert part.width is not None
        self.project = Linear(3 * part.width, part.hidden, bias=part.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        rows = Embedding.forward(self, tokens)
        count, none = rows.shape[1], rows.new_zeros(rows.shape[0], 1, rows.shape[2])
        padded = torch.cat((none, rows, none), dim=1)
        assert self.project is not None
        three = (padded.narrow(1, 2, count), rows, padded.narrow(1, 0, count))
        made: Tensor = self.project(torch.cat(three, dim=2))
        return made


class ExtendedHead(Head):
    """Logits over the embedding, concatenated with the head's own matrix."""

    def __init__(self, part: mobilebert.ExtendedHead, last: bool) -> None:
        super().__init__(part, last)
        rows = self.in_features + part.rest
        self.transform = Linear(part.hidden, rows, bias=part.transform_bias)
        self.norm = LayerNorm((rows,), part.eps, bias=part.norm_bias)
        self.rest = Linear(part.rest, part.vocab, bias=False)

    def _logits(self, rows: Tensor) -> Tensor:
        of_table, rest = torch.split(rows, [self.in_features, self.rest.in_features], dim=-1)
        logits: Tensor = super()._logits(of_table) + self.rest(rest)
        return logits


class BottleneckAttention(Heads):
    """Attention in a bottleneck, added to the narrow tokens."""

    takes = ()

    def __init__(self, part: mobilebert.BottleneckAttention) -> None:
        super().__init__(part)
        self.input, self.shared = (Linear(part.hidden, part.narrow) for _ in range(2))
        self.input_norm, self.shared_norm, self.narrow_norm = (ScaleAndShift(part.narrow) for _ in range(3))
        self.q_proj, self.k_proj = Linear(part.narrow, self.queries), Linear(part.narrow, self.keys)
        self.o_proj = Linear(self.queries, part.narrow)
        self.softmax, self.narrow_add = Softmax(self.scale), Add()

    def forward(self, x: Tensor) -> Tensor:
        narrow, read = self.input_norm(self.input(x)), self.shared_norm(self.shared(x))
        q = self._split(self.q_proj(read), self.heads)
        k, v = (self._split(each, self.kv_heads) for each in (self.k_proj(read), self.v_proj(x)))
        mixed = self.values(self.softmax(self._scored(q, k), None), v)
        out: Tensor = self.narrow_norm(self.narrow_add(narrow, self.o_proj(mixed.transpose(1, 2).flatten(2))))
        return out


class BottleneckMLP(nn.Module):
    """An MLP, added to its input, and NoNorm."""

    def __init__(self, part: mobilebert.BottleneckMLPs) -> None:
        super().__init__()
        self.up_proj = Linear(part.narrow, part.width)
        self.act = Activation(part.activation)
        self.down_proj = Linear(part.width, part.narrow)
        self.add, self.norm = Add(), ScaleAndShift(part.narrow)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.add(x, self.down_proj(self.act(self.up_proj(x)))))
        return out


class BottleneckMLPs(PartModule):
    """MLPs in a bottleneck, one after the other, and the projection back to the hidden size."""

    def __init__(self, part: mobilebert.BottleneckMLPs) -> None:
        super().__init__()
        self.networks = nn.ModuleList(BottleneckMLP(part) for _ in range(part.count))
        self.output = Linear(part.narrow, part.hidden)

    def forward(self, x: Tensor) -> Tensor:
        for network in self.networks:
            x = network(x)
        out: Tensor = self.output(x)
        return out
