"""The reference model's sliding-chunk attention.

Shapes: heads are (batch, heads, tokens, head size), those of windows (batch · windows, heads, tokens, head size).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tfacct.families.rare import longformer
from tfacct.reference.attention import Heads, Softmax
from tfacct.reference.modules import Unused
from tfacct.reference.step import Step


class SlidingChunkAttention(Heads):
    """Attention of each token to those at most half a window away."""

    takes = ("step",)

    def __init__(self, part: longformer.SlidingChunkAttention) -> None:
        super().__init__(part)
        self.side = part.half
        self.softmax = Softmax(self.scale)
        for which, size in (("q", self.queries), ("k", self.keys), ("v", self.keys)):
            self.add_module(f"{which}_global_proj", Unused(part.hidden, size, bias=part.qkv_bias))

    def forward(self, x: Tensor, step: Step) -> Tensor:
        q = self._split(self.q_proj(x), self.heads)
        k, v = (self._split(made(x), self.kv_heads) for made in (self.k_proj, self.v_proj))
        rows = self._rows(q, k)
        batch, halves = rows.shape[:2]
        shares = self.softmax(_band(rows, self.side), self._mask(x, step))
        none = torch.zeros_like(v[:, :, : self.side])
        seen = _adjacent(torch.cat((none, v, none), dim=2), self.side, 3)
        mixed = self.values(_spread(shares, self.side).flatten(0, 1), seen.flatten(0, 1))
        mixed = torch.unflatten(mixed, 0, (batch, halves)).transpose(1, 2).flatten(2, 3)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out

    def _rows(self, q: Tensor, k: Tensor) -> Tensor:
        """Scores of the queries of each half with the keys of three, (batch, halves, heads, half, 3 · half)."""
        half = self.side
        q, k = _adjacent(q, half, 2), _adjacent(k, half, 2)
        scores = torch.unflatten(self._scored(q.flatten(0, 1), k.flatten(0, 1)), 0, q.shape[:2])
        first, second = torch.split(scores, [half, half], dim=3)
        none = torch.zeros_like(first[:, :1, :, :, :half])
        before = torch.cat((none, second[..., :half]), dim=1)
        same = torch.cat((first[..., :half], second[:, -1:, :, :, half:]), dim=1)
        after = torch.cat((first[..., half:], none), dim=1)
        return torch.cat((before, same, after), dim=-1)

    def _mask(self, x: Tensor, step: Step) -> Tensor:
        """Mask of keys before the source's first token or after its last one. It is not −∞, because a query after the
        last token may have no other keys."""
        around = torch.arange(2 * self.side + 1, device=x.device) - self.side
        keys = torch.arange(x.shape[1], device=x.device)[:, None] + around
        least = torch.finfo(x.dtype).min / 2
        mask = torch.zeros(keys.shape, dtype=x.dtype, device=x.device)
        mask = mask.masked_fill(keys < 0, least).masked_fill(keys >= step.source, least)
        return torch.unflatten(mask, 0, (x.shape[1] // self.side, self.side)).unsqueeze(1)


def _adjacent(heads: Tensor, half: int, count: int) -> Tensor:
    """Windows of `count` adjacent halves, from each half on: (batch, windows, heads, count · half, size)."""
    each = torch.unflatten(heads, 2, (heads.shape[2] // half, half)).transpose(1, 2)
    windows = each.shape[1] - count + 1
    return torch.cat([each[:, first : first + windows] for first in range(count)], dim=3)


def _band(rows: Tensor, half: int) -> Tensor:
    """Scores of the keys that each query sees, half a window on either side, from rows over three halves: each row
    begins one place later."""
    wide = _with_zeros(rows.flatten(3), half)
    return torch.unflatten(wide, 3, (half, 3 * half + 1))[..., : 2 * half + 1]


def _spread(band: Tensor, half: int) -> Tensor:
    """The reverse of `_band`, with zeros for all other keys."""
    wide = _with_zeros(band, half).flatten(3)
    return torch.unflatten(wide[..., : 3 * half * half], 3, (half, 3 * half))


def _with_zeros(rows: Tensor, count: int) -> Tensor:
    """Rows with `count` zeros at the end. Not by `pad`, which needs the numbers of symbolic sizes."""
    return torch.cat((rows, torch.zeros_like(rows[..., :count])), dim=-1)
