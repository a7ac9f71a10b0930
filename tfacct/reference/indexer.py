"""The reference model's indexer, which selects the keys that a token attends to.

"DeepSeek-V3.2: Pushing the Frontier of Open Large Language Models" (arXiv 2512.02556), section 2.1, and transformers'
DeepseekV32Indexer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.modules import Activation, LayerNorm, Linear, Product, Work
from tfacct.reference.rotary import Angles, Rotary, rotated
from tfacct.reference.step import Step


class Grown(Work):
    """Queries times a learned factor per head, the logarithm of their position, and a learned scalar
    (transformers' MistralLarge4TextSoftmaxScaling)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(heads)), nn.Parameter(torch.empty(heads))

    def forward(self, q: Tensor, positions: Tensor) -> Tensor:
        grown = torch.log(positions.to(q.device, q.dtype) + 1)
        return q * (self.weight[:, None] * grown + self.bias[:, None]).unsqueeze(-1)


class Indexer(nn.Module):
    """Separate heads score one key per token; their weighted sum selects the keys."""

    def __init__(self, part: parts.LatentAttention, angles: Angles | None) -> None:
        super().__init__()
        indexer: Any = part.indexer
        rotary_dim: Any = part.rope_dim
        self.heads, self.size, self.top, self.rotary_dim = indexer.heads, indexer.head_dim, indexer.top, rotary_dim
        self.angles, self.last = angles, indexer.rotated == "last"
        self.q_proj = Linear(part.q_rank or part.hidden, self.heads * self.size, bias=False)
        self.k_proj = Linear(part.hidden, self.size, bias=False)
        self.k_norm = LayerNorm((self.size,), 1e-6)
        self.q_rotary = self.k_rotary = None
        if part.rotary is not None:
            how = part.rotary._replace(pairs=indexer.pairs)
            self.q_rotary, self.k_rotary = Rotary(how, rotary_dim), Rotary(how, rotary_dim)
        self.scores, self.act, self.sum = Product(self.heads), Activation("relu"), Product(1)
        self.weights_proj = Linear(part.hidden, self.heads, bias=False)

    def forward(self, x: Tensor, read: Tensor, step: Step, past: Tensor | None) -> Tensor:
        """Keys at the end of the step, (batch, 1, keys, size); the selection is stored in the step."""
        q = self._queries(x, read, step)
        k: Tensor = self.k_norm(self.k_proj(x)).unsqueeze(1)
        if self.angles is not None and self.q_rotary is not None and self.k_rotary is not None:
            how = step.cos_sin(self.angles), self.rotary_dim, self.last
            q, k = rotated(self.q_rotary, q, *how), rotated(self.k_rotary, k, *how)
        old = 0
        if past is not None:
            old = past.shape[2]
            k = torch.cat((past, k), dim=2)
        each = self.act(self.scores(q, k.transpose(2, 3)) * self.size**-0.5).transpose(1, 2)
        weights = (self.weights_proj(x) * self.heads**-0.5).unsqueeze(2)
        step.chosen = self._mask(self.sum(weights, each).transpose(1, 2) + step.mask(old, None))
        return k

    def _queries(self, x: Tensor, read: Tensor, step: Step) -> Tensor:  # noqa: ARG002
        return torch.unflatten(self.q_proj(read), 2, (self.heads, self.size)).transpose(1, 2)

    def _mask(self, scores: Tensor) -> Tensor | None:
        """Mask of shape (batch, 1, new, keys): −∞ for keys that are not selected. Without values, or with symbolic
        sizes, all keys are selected, by a mask computed from the scores, because a trace would drop unused scores."""
        if not isinstance(self.top, int):
            return None
        if scores.is_meta or not all(isinstance(size, int) for size in scores.shape):
            return scores * 0.0
        best = scores.detach().topk(min(self.top, scores.shape[-1]), dim=-1).indices
        return torch.full_like(scores, float("-inf")).scatter(-1, best, 0.0)
