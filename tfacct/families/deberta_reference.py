"""The torch modules of DeBERTa: distance scores, the distance embedding, and the convolution next to the first layer.

Shapes: heads are (batch, heads, tokens, head size), rows of distances (distances, hidden).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tfacct.families import deberta
from tfacct.reference.attention import Attention
from tfacct.reference.distances import Gather
from tfacct.reference.modules import Activation, Add, Embedding, LayerNorm, Linear, Product
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step


def rows_of(part: deberta.DisentangledAttention, positions: Tensor) -> Tensor:
    """Row of the embedding for each query and key: far distances share rows logarithmically up to `reach`.

    transformers' make_log_bucket_position and DisentangledSelfAttention.disentangled_attention_bias.
    """
    apart = positions[:, None] - positions[None, :]
    rows = 2 * positions.shape[0] if part.distances is None else part.distances
    if not isinstance(rows, int):  # a symbol: the choice of row does not change a count
        return apart * 0
    span = rows // 2
    if part.reach is not None:
        middle, far = max(span // 2, 1), apart.abs()
        near = far < middle
        far = torch.where(near, torch.full_like(far, middle - 1), far)
        octaves = math.log(max(part.reach - 1, 1) / middle) or 1.0  # 1 for an embedding that is too small to share rows
        ratio = torch.log(far / middle) / octaves
        shared = torch.ceil(ratio * (middle - 1)) + middle
        apart = torch.where(far <= middle, apart, (shared * apart.sign()).long())
    return (apart + span).clamp(0, 2 * span - 1)


def _of_text(table: Tensor, tokens: int) -> Tensor:
    """The rows of the distances in a text, from the middle of the embedding. For symbols, which have no middle, and for
    texts that are too long, one row repeated: the choice of rows does not change a count."""
    reach = table.shape[0] // 2
    if not isinstance(reach, int) or not isinstance(tokens, int) or tokens > reach:
        return table.narrow(0, 0, 1).expand(2 * tokens, -1)
    return table.narrow(0, reach - tokens, 2 * tokens)


class Distances(Embedding):
    """The whole embedding of distances."""

    def __init__(self, part: deberta.Distances) -> None:
        super().__init__(part.buckets, part.hidden)
        self.norm = LayerNorm((part.hidden,), part.eps) if part.normed else None

    def all(self) -> Tensor:
        """Every row, after its norm."""
        rows: Tensor = self.weight if self.norm is None else self.norm(self.weight)
        return rows


class DisentangledAttention(Attention):
    """Attention that also scores distances: queries with the keys of all distances, and keys with their queries."""

    def __init__(self, part: deberta.DisentangledAttention, angles: Angles | None, **how: bool) -> None:
        super().__init__(part, angles, **{**how, "fused": False})
        self.part = part
        self.pos_k_proj = self.pos_q_proj = self.to_positions = self.from_positions = None
        if part.shared or part.to_positions:
            self.pos_k_proj = self._projection(self.k_proj, self.keys)
        if part.shared or part.from_positions:
            self.pos_q_proj = self._projection(self.q_proj, self.queries)
        if part.to_positions:
            self.to_positions, self.to_add = Product(part.group), Gather()
        if part.from_positions:
            self.from_positions, self.from_add = Product(1), Gather()

    def _projection(self, owner: Linear, size: int) -> Linear:
        """Projection of distances, with the tokens' weight if it is shared."""
        projection = Linear(self.part.hidden, size, bias=owner.bias is not None)
        if self.part.shared:
            projection.weight, projection.bias = owner.weight, owner.bias
        return projection

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, step: Step, _: int) -> Tensor:
        part, batch = self.part, q.shape[0]
        scores, which = self._scored(q, k), rows_of(self.part, step.positions).to(q.device)
        assert step.rows is not None
        read = step.rows if part.distances is not None else _of_text(step.rows, q.shape[2])
        rows = None if self.pos_k_proj is None else self.pos_k_proj(read)
        if self.to_positions is not None and rows is not None:
            keys = torch.unflatten(rows, 1, (part.kv_heads, part.head_dim)).permute(1, 2, 0)
            scored = self.to_positions(q, keys.expand(batch, *keys.shape))
            scores = self.to_add(scores, scored, which, of_keys=False)
        rows = None if self.pos_q_proj is None else self.pos_q_proj(read)
        if self.from_positions is not None and rows is not None:
            queries = torch.unflatten(rows, 1, (part.kv_heads, part.group, part.head_dim)).permute(1, 3, 2, 0)
            scored = self.from_positions(k, queries.flatten(2).expand(batch, -1, -1, -1))
            scored = torch.unflatten(scored, 3, (part.group, read.shape[0])).transpose(2, 3).flatten(1, 2)
            scores = self.from_add(scores, scored, which, of_keys=True)
        mixed: Tensor = self.values(self.softmax(scores, None, None), v)
        return mixed


class FirstConvolution(Linear):
    """A convolution around each token, unfolded into one matmul, added to the residual stream; (batch, tokens,
    hidden)."""

    def __init__(self, part: deberta.FirstConvolution) -> None:
        super().__init__(part.hidden * part.kernel, part.hidden)
        self.kernel, self.act, self.add = part.kernel, Activation(part.activation), Add()
        self.norm = LayerNorm((part.hidden,), part.eps)

    def forward(self, x: Tensor, stream: Tensor) -> Tensor:  # type: ignore[override]
        nothing = [torch.zeros_like(x.narrow(1, 0, 1))] * (self.kernel // 2)
        around = torch.cat((*nothing, x, *nothing), dim=1)
        seen = torch.stack([around.narrow(1, first, x.shape[1]) for first in range(self.kernel)], dim=-1)
        out: Tensor = self.norm(self.add(stream, self.act(super().forward(seen.flatten(2)))))
        return out
