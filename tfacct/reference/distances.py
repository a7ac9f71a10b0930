"""The reference model's relative position biases: learned, shared by all layers or per layer, and gathered."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tfacct.architecture import parts
from tfacct.reference.modules import Add, Embedding


class RelativeBias(Embedding):
    """Bias per head and per bucket of distances from a query to a key.

    Raffel et al., "T5" (arXiv 1910.10683), section 2.1, and transformers' T5Attention._relative_position_bucket.
    """

    def __init__(self, part: parts.RelativeBias | parts.DistanceBias, heads: int, *, both_ways: bool) -> None:
        super().__init__(part.buckets or 0, heads)
        self.both_ways, self.furthest, self.across = both_ways, part.furthest, part.across

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:  # type: ignore[override]
        """Scores (1, heads, queries, keys) for these positions."""
        rows = self._buckets(keys[None, :] - queries[:, None]) if self.across is None else self._places(queries, keys)
        return super().forward(rows.to(self.weight.device)).permute(2, 0, 1).unsqueeze(0)

    def _places(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Bucket of the distance of two patches in rows and columns; the last three are class token to patch, patch to
        class token, and class token to itself (BeitRelativePositionBias). For an image of another size, or symbols, any
        row: the class resamples its embedding, and the choice does not change a count."""
        side: int = self.across or 0
        known = isinstance(self.num_embeddings, int) and isinstance(keys.shape[0], int)
        if not known or keys.shape[0] != side**2 + 1:
            return (keys[None, :] - queries[:, None]) * 0
        (i, j), wide, last = ((queries - 1)[:, None], (keys - 1)[None, :]), 2 * side - 1, self.num_embeddings
        by_rows = torch.div(i, side, rounding_mode="floor") - torch.div(j, side, rounding_mode="floor") + side - 1
        found = by_rows * wide + i % side - j % side + side - 1
        found = torch.where(j < 0, torch.full_like(found, last - 2), found)
        found = torch.where(i < 0, torch.full_like(found, last - 3), found)
        return torch.where((i < 0) & (j < 0), torch.full_like(found, last - 1), found)

    def _buckets(self, distances: Tensor) -> Tensor:
        """Bucket of each distance: near distances have one each, far ones share buckets logarithmically. Keys after a
        query have a separate half of the buckets; a causal stack has no such keys and uses all buckets."""
        if not isinstance(self.num_embeddings, int):  # a symbol: the choice of row does not change a count
            return distances * 0
        count, first = self.num_embeddings, torch.zeros_like(distances)
        if self.both_ways:
            count //= 2
            first = (distances > 0).long() * count
            distances = distances.abs()
        else:
            distances = (-distances).clamp(min=0)
        near = count // 2
        octaves = torch.log(distances.clamp(min=1) / max(near, 1)) / math.log(self.furthest / max(near, 1))
        far = (near + (octaves * (count - near)).long()).clamp(max=count - 1)
        return first + torch.where(distances < near, distances, far)


class LayerBias(RelativeBias):
    """Relative position bias from a layer's own embedding, added to the scores."""

    def __init__(self, part: parts.DistanceBias, heads: int, *, both_ways: bool) -> None:
        super().__init__(part, heads, both_ways=both_ways)
        self.add = Add()

    def forward(self, scores: Tensor, positions: Tensor) -> Tensor:  # type: ignore[override]
        """Sum of both, for these positions of the queries; keys have all positions from 0 on."""
        keys = torch.arange(scores.shape[-1], device=positions.device)
        return self.add(scores, super().forward(positions, keys))


class Gather(Add):
    """Adds the score of the distance to each pair of tokens, gathered from scores of every token and distance."""

    def forward(  # type: ignore[override]
        self, scores: Tensor, by_distance: Tensor, which: Tensor, *, of_keys: bool
    ) -> Tensor:
        """`which`: row of the embedding for each query and key. If `of_keys`, `by_distance` has the scores of keys."""
        batch, heads, tokens, _ = by_distance.shape
        each = (which.transpose(0, 1) if of_keys else which).expand(batch, heads, tokens, tokens)
        found = torch.gather(by_distance, -1, each)
        return super().forward(scores, found.transpose(-1, -2) if of_keys else found)
