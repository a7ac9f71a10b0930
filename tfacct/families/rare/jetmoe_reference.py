"""The reference model's mixture of attention.

The experts of each token are fixed, as in tfacct/reference/experts.py. Shapes: heads are (batch, heads, tokens, head
size).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.families.rare import jetmoe
from tfacct.reference.attention import Attention, Cache, Softmax, appended
from tfacct.reference.experts import ExpertLinear, Shifted
from tfacct.reference.modules import Linear, Times
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step


class MixtureOfAttention(Attention):
    """Attention whose query and output projections are experts: each gives one query per key/value head."""

    def __init__(self, part: jetmoe.MixtureOfAttention, angles: Angles | None, *, fused: bool, keep_all: bool) -> None:
        super().__init__(part, angles, fused=fused, keep_all=keep_all)
        self.q_proj = self.o_proj = None  # type: ignore[assignment]
        self.active, self.count = part.group, part.experts
        self.router, self.routing = Linear(part.hidden, part.experts, bias=False), Softmax(None)
        sizes_of = {"q_proj": (part.hidden, self.keys), "o_proj": (self.keys, part.hidden)}
        self.experts = nn.ModuleDict(
            {name: ExpertLinear(part.experts, *sizes, bias=False) for name, sizes in sizes_of.items()}
        )
        self.weighting, self.sum = Times(), Shifted(part.hidden)

    def forward(self, x: Tensor, step: Step, past: Cache | None) -> tuple[Tensor, ...]:
        batch, tokens, size = x.shape
        scores = self.routing(self.router(x), None)
        turns = torch.arange(batch * tokens * self.active, device=x.device).view(batch, tokens, self.active)
        weights = torch.gather(scores, 2, turns % self.count).unsqueeze(3)
        queries = self.experts["q_proj"](x.unsqueeze(2).expand(batch, tokens, self.active, size))
        # The queries of one key/value head are adjacent, each from another expert.
        q = torch.unflatten(queries, 3, (self.kv_heads, self.head_dim)).permute(0, 3, 2, 1, 4).flatten(1, 2)
        k, v = (self._split(made(x), self.kv_heads) for made in (self.k_proj, self.v_proj))
        if self.angles is not None:
            q, k = self._rotated(self.q_rotary, q, step), self._rotated(self.k_rotary, k, step)
        old = 0 if past is None else past[0].shape[2]
        k, v = appended(past, k, v)
        mixed = torch.unflatten(self._mixed(q, k, v, step, old), 1, (self.kv_heads, self.active))
        made = self.experts["o_proj"](mixed.permute(0, 3, 2, 1, 4).flatten(3))
        result: Tensor = self.sum(self.weighting(made, weights).sum(dim=2))
        return result, self._cached_heads(k), self._cached_heads(v)
