"""What the layers of one forward pass of the reference model share: masks, RoPE, relative position biases."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tfacct.reference.rotary import Angles


def forbidding(where: Tensor, like: Tensor) -> Tensor:
    """Mask of scores: −∞ there, 0 elsewhere."""
    where = where.to(like.device)
    return torch.zeros(where.shape, dtype=like.dtype, device=like.device).masked_fill(where, float("-inf"))


class Step:
    """Tensors shared by the layers of one forward pass: masks, RoPE angles of the new positions, and `bias`, the
    relative position bias. Each is computed once. `rows`: embeddings of all distances, if any. `per_layer`: per-layer
    embeddings, (batch, tokens, layers, width). `lent`: keys and values that later layers reuse, by window; None if none
    do. `first`: input of the first layer. `chosen`: mask of the keys that an indexer selected last. `carried`: tensors
    that a part of a layer passes to the next layer, by name. `late`: output of experts that is added to the residual
    stream after the next layer, and the addition. `latents`: latents for reuse in later layers, of the last layer with
    rotary embedding and of the last one without.
    """

    rows: Tensor | None = None
    per_layer: Tensor | None = None
    chosen: Tensor | None = None
    first: Tensor | None = None
    late: tuple[nn.Module, Tensor] | None = None
    source: int = 0
    lent: dict[int | None, tuple[Tensor, Tensor]] | None = None

    def __init__(self, like: Tensor, positions: Tensor, bias: Tensor | None = None) -> None:
        self.like, self.positions, self.bias = like, positions, bias
        self._masks: dict[int | None, Tensor] = {}
        self._chunks: dict[int, Tensor] = {}
        self._cos_sins: dict[int, tuple[Tensor, Tensor]] = {}
        self.latents: dict[bool, tuple[Tensor, Tensor]] = {}
        self.carried: dict[str, Tensor] = {}

    def mask(self, old: int, window: int | None) -> Tensor:
        """Mask of shape (new, old + new): −∞ for later keys, and for keys before the window.

        Layers with the same window cache the same number of keys.
        """
        if window not in self._masks:
            new = self.like.shape[1]
            forbidden = torch.full((new, old + new), float("-inf"), dtype=self.like.dtype, device=self.like.device)
            mask = forbidden.triu(old + 1)
            self._masks[window] = mask if window is None else mask + forbidden.tril(old - window)
        return self._masks[window]

    def chunk(self, old: int, size: int) -> Tensor:
        """Mask of shape (new, old + new): −∞ for later keys, and for keys in an earlier chunk of `size` positions."""
        if size not in self._chunks:
            new = self.like.shape[1]
            queries = self.positions[:, None]
            keys = self.positions[:1] - old + torch.arange(old + new, device=self.positions.device)
            self._chunks[size] = forbidding((keys // size < queries // size) | (keys > queries), self.like)
        return self._chunks[size]

    def around(self, window: int) -> Tensor:
        """Mask of shape (tokens, tokens): −∞ for keys outside the window around a token."""
        if -window not in self._masks:
            apart = self.positions[None, :] - self.positions[:, None]
            far = (apart < -((window - 1) // 2)) | (apart > window // 2)
            self._masks[-window] = forbidding(far, self.like)
        return self._masks[-window]

    def cos_sin(self, angles: Angles) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine of the angles of every new position."""
        if id(angles) not in self._cos_sins:
            cos, sin = angles.cos_sin(self.positions)
            self._cos_sins[id(angles)] = (
                cos.to(self.like.device, self.like.dtype),
                sin.to(self.like.device, self.like.dtype),
            )
        return self._cos_sins[id(angles)]
