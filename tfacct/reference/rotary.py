"""Rotary embedding (RoPE) with the frequencies of the config.

Su et al., "RoFormer" (arXiv 2104.09864), section 3.2. Longer contexts: transformers' modeling_rope_utils, `linear` as
in _compute_linear_scaling_rope_parameters and `llama3` as in _compute_llama3_parameters. Other types do not change
counts, and raise an error if angles are needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.base.errors import ConfigError


class Angles:
    """Angles of one kind of rotary embedding over `size` dimensions of a head."""

    def __init__(self, part: parts.Rotary, size: int) -> None:
        self.part, self.frequencies = part, frequencies(part, size)

    def cos_sin(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine of every position's angles, on the device of the frequencies."""
        part, frequencies = self.part, self.frequencies
        positions = positions if part.tiles is None else in_tiles(positions, part.tiles)
        places = positions.to(frequencies.device)[:, None]
        if part.axes > 1 and isinstance(positions.shape[0], int) and isinstance(frequencies.shape[0], int):
            pieces = torch.tensor_split(frequencies, part.axes)
            axes = zip(self._on_grid(places, positions.shape[0] - part.unrotated), pieces, strict=True)
            places = torch.cat([axis.expand(-1, piece.shape[0]) for axis, piece in axes], dim=1)
        angles = places * frequencies[None]
        if part.kind == "woven_grid" and isinstance(angles.shape[1], int):
            angles = torch.stack(torch.tensor_split(angles, 2, dim=1)[::-1], dim=2).flatten(1)
        cos, sin = angles.cos(), (-angles if part.kind == "backwards" else angles).sin()
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)

    def _on_grid(self, places: Tensor, count: int) -> list[Tensor]:
        """Row and column of each of `count` patches of a square image, and 0 for learned tokens."""
        kind, side = self.part.kind, max(math.isqrt(count), 1)
        places = places - self.part.unrotated if kind == "centred_grid" else places
        axes = [places // side, places % side]
        if kind == "video_grid":
            return [places * 0, *axes]  # an image has one frame
        if kind == "grid_from_one":
            return [(axis + 1) * (places < count) for axis in reversed(axes)]
        if kind == "centred_grid":
            return [(2 * (axis.double() + 0.5) / side - 1) * 2 * math.pi * (places >= 0) for axis in axes]
        return axes


class Rotary(nn.Module):
    """Rotation of the halves of a head by position. The sine includes the sign of each half's contribution to the
    other."""

    def __init__(self, part: parts.Rotary, size: int) -> None:
        super().__init__()
        self.kind, self.pairs = part.pairs, size // 2

    def forward(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if self.kind == "neighbours":  # queries and keys have the same order of elements, so it may change
            heads = torch.unflatten(heads, -1, (self.pairs, 2)).transpose(-1, -2).flatten(-2)
        if self.kind == "quarters":  # of rows and of columns, half of each one after the other
            columns, rows = torch.unflatten(heads, -1, (2, 2, self.pairs // 2)).unbind(-3)
            heads = torch.stack((rows, columns), dim=-2).flatten(-3)
        left, right = torch.unflatten(heads, -1, (2, self.pairs)).unbind(-2)  # `chunk` compares the sizes of the halves
        return (heads * cos).add_(torch.cat((right, left), dim=-1).mul_(sin))


def rotated(
    rotary: nn.Module, heads: Tensor, cos_sin: tuple[Tensor, Tensor], rotary_dim: Any, last: bool = False
) -> Tensor:
    """Rotary embedding of the first or last dimensions of heads, skipped in a proof, which has symbols for sizes, or
    for heads smaller than the rotary dimensions; no matmul depends on it."""
    size = heads.shape[-1]
    if not isinstance(rotary_dim, int) or not isinstance(size, int) or size < rotary_dim:
        return heads
    if last:
        rest, end = torch.split(heads, [size - rotary_dim, rotary_dim], dim=-1)
        return torch.cat((rest, rotary(end, *cos_sin)), dim=-1)
    first, rest = torch.split(heads, [rotary_dim, size - rotary_dim], dim=-1)
    return torch.cat((rotary(first, *cos_sin), rest), dim=-1)


def frequencies(part: parts.Rotary, head_dim: int) -> Tensor:
    """Angle per position for each pair of a head's elements, in float64 on the CPU; only shapes on meta.

    Raises ConfigError for an unsupported rope_type.
    """
    if torch.get_default_device().type == "meta" or not isinstance(head_dim, int):  # a symbol has no angles
        return torch.empty(head_dim // 2, dtype=torch.float64)
    exponents = torch.arange(head_dim // 2, dtype=torch.float64, device="cpu") * 2 / head_dim
    plain = _number(part.base, "rope_theta") ** -exponents
    scaling = part.scaling or {}
    if part.axes == 3:  # angles of frames, rows and columns
        pairs = head_dim // 6
        angles = _number(part.base, "rope_theta") ** -(torch.arange(pairs, dtype=torch.float64, device="cpu") / pairs)
        return angles.repeat(3)
    if part.axes == 2:  # angles of rows, then of columns
        return torch.cat((plain[0::2], plain[1::2] if part.tiles is None else plain[0::2]))
    if part.scaled == "default":
        return plain
    # transformers' _compute_proportional_rope_parameters: the rest of the head is not rotated
    if part.scaled == "proportional":
        pairs = int(scaling.get("partial_rotary_factor", 1.0) * head_dim // 2)
        return torch.cat((plain[:pairs], torch.zeros_like(plain[pairs:]))) / float(scaling.get("factor", 1.0))
    if part.scaled == "linear":
        return plain / _number(scaling.get("factor"), "factor")
    if part.scaled == "llama3":
        return _llama3(plain, scaling)
    raise ConfigError(
        f"the reference model has no rope_type {part.scaled!r}", "it has default, linear, llama3, proportional"
    )


def in_tiles(positions: Tensor, tiles: tuple[int, ...]) -> Tensor:
    """Positions in a square image, counted row by row, of patches that come tile by tile: in tiles of the first side,
    inside them in tiles of the second, and so on. In their given order if they do not fill such a square."""
    count = positions.shape[0]
    side = math.isqrt(count) if isinstance(count, int) else 0
    sides = [side, *tiles]
    if not tiles or side == 0 or side * side != count or any(outer % inner for outer, inner in pairwise(sides)):
        return positions
    counts = [*(outer // inner for outer, inner in pairwise(sides)), sides[-1]]
    levels = len(counts)
    places = torch.arange(count, device=positions.device).reshape(*counts, *counts)
    order = places.permute(*(axis for level in range(levels) for axis in (level, levels + level))).flatten()
    return order[positions]


def _llama3(plain: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Angles of Llama 3.1: slow ones are divided by the factor, fast ones unchanged, those between interpolated.

    transformers' modeling_rope_utils._compute_llama3_parameters.
    """
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    factor, low, high, original = (_number(scaling.get(name), name) for name in names)
    share = ((original * plain / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
    return plain * (share + (1 - share) / factor)


def _number(value: object, name: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ConfigError(f"rotary positions: {name} must be a number, not {value!r}")
    return float(value)
