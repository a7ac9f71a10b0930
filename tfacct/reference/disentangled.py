"""The reference model's disentangled attention: scores of contents, and of contents and distances.

Shapes: heads are (batch, heads, tokens, head size), rows of distances (distances, hidden).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tfacct.architecture import parts
from tfacct.reference.attention import Attention
from tfacct.reference.modules import Add, Linear, Product
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step


class Gather(Add):
    """Scores of every token and distance, of which each pair's is added to the pair's own."""

    def forward(  # type: ignore[override]
        self, scores: Tensor, by_distance: Tensor, which: Tensor, *, turned: bool
    ) -> Tensor:
        """`which`: row of the table for each query and key; `turned`: `by_distance` has those of the keys."""
        batch, heads, tokens, _ = by_distance.shape
        each = (which.transpose(0, 1) if turned else which).expand(batch, heads, tokens, tokens)
        found = torch.gather(by_distance, -1, each)
        out: Tensor = super().forward(scores, found.transpose(-1, -2) if turned else found)
        return out


def rows_of(part: parts.DisentangledAttention, positions: Tensor) -> Tensor:
    """Row of the table for each query and key: far distances share rows by their logarithm if they have a `reach`.

    transformers' make_log_bucket_position and DisentangledSelfAttention.disentangled_attention_bias.
    """
    apart = positions[:, None] - positions[None, :]
    rows = 2 * positions.shape[0] if part.distances is None else part.distances
    if not isinstance(rows, int):  # a symbol: which row is read changes no count
        return apart * 0
    span = rows // 2
    if part.reach is not None:
        middle, far = max(span // 2, 1), apart.abs()
        near = far < middle
        far = torch.where(near, torch.full_like(far, middle - 1), far)
        octaves = math.log(max(part.reach - 1, 1) / middle) or 1.0  # 1 for a table too small to share any
        ratio = torch.log(far / middle) / octaves
        shared = torch.ceil(ratio * (middle - 1)) + middle
        apart = torch.where(far <= middle, apart, (shared * apart.sign()).long())
    return (apart + span).clamp(0, 2 * span - 1)


def _of_text(table: Tensor, tokens: int) -> Tensor:
    """The rows of the distances in a text, in the middle of the table. Of symbols, which have no middle, and of a text
    that the table is too short for, one row as often as there are distances: which row is read changes no count."""
    reach = table.shape[0] // 2
    if not isinstance(reach, int) or not isinstance(tokens, int) or tokens > reach:
        return table.narrow(0, 0, 1).expand(2 * tokens, -1)
    return table.narrow(0, reach - tokens, 2 * tokens)


class DisentangledAttention(Attention):
    """Attention that scores distances too: queries with the keys of all distances, and keys with their queries."""

    def __init__(self, part: parts.DisentangledAttention, angles: Angles | None, **how: bool) -> None:
        super().__init__(part, angles, **{**how, "fused": False})
        self.part = part
        self.pos_k_proj = self.pos_q_proj = self.to_positions = self.from_positions = None
        if part.shared or part.to_positions:
            self.pos_k_proj = self._projected(self.k_proj, self.keys)
        if part.shared or part.from_positions:
            self.pos_q_proj = self._projected(self.q_proj, self.queries)
        if part.to_positions:
            self.to_positions, self.to_add = Product(part.group), Gather()
        if part.from_positions:
            self.from_positions, self.from_add = Product(1), Gather()

    def _projected(self, owner: Linear, size: int) -> Linear:
        """Product of distances: with the weight of the tokens', where it is shared."""
        own = Linear(self.part.hidden, size, bias=owner.bias is not None)
        if self.part.shared:
            own.weight, own.bias = owner.weight, owner.bias
        return own

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, step: Step, _: int) -> Tensor:
        part, batch = self.part, q.shape[0]
        scores, which = self._scored(q, k), rows_of(self.part, step.positions).to(q.device)
        assert step.rows is not None
        read = step.rows if part.distances is not None else _of_text(step.rows, q.shape[2])
        rows = None if self.pos_k_proj is None else self.pos_k_proj(read)
        if self.to_positions is not None and rows is not None:
            keys = torch.unflatten(rows, 1, (part.kv_heads, part.head_dim)).permute(1, 2, 0)
            scored = self.to_positions(q, keys.expand(batch, *keys.shape))
            scores = self.to_add(scores, scored, which, turned=False)
        rows = None if self.pos_q_proj is None else self.pos_q_proj(read)
        if self.from_positions is not None and rows is not None:
            queries = torch.unflatten(rows, 1, (part.kv_heads, part.group, part.head_dim)).permute(1, 3, 2, 0)
            scored = self.from_positions(k, queries.flatten(2).expand(batch, -1, -1, -1))
            scored = torch.unflatten(scored, 3, (part.group, read.shape[0])).transpose(2, 3).flatten(1, 2)
            scores = self.from_add(scores, scored, which, turned=True)
        mixed: Tensor = self.values(self.softmax(scores, None, None), v)
        return mixed
