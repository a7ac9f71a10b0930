"""The angles of rotary positions, as the config spells them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tfacct import parts
from tfacct.errors import ConfigError


def frequencies(part: parts.Rotary, head_dim: int, device: torch.device) -> Tensor:
    """One angle per position for each pair of a head's numbers, in float64."""
    exponents = torch.arange(head_dim // 2, dtype=torch.float64, device=device) * 2 / head_dim
    plain = part.base**-exponents
    if device.type == "meta":
        return plain  # no numbers to stretch
    scaling = part.scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return plain
    if kind == "linear":
        return plain / float(scaling["factor"])
    if kind == "llama3":
        return _llama3(plain, scaling)
    raise ConfigError(f"the reference model has no rope_type {kind!r}", "it has default, linear, llama3")


def _llama3(plain: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Llama 3.1: slow angles are divided by the factor, fast ones kept, those between blended."""
    factor, low, high = (float(scaling[k]) for k in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = float(scaling["original_max_position_embeddings"]) * plain / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * (kept + (1 - kept) / factor)
