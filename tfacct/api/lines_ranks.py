"""The JSON of ranks of a mesh, part by part, as types."""

from __future__ import annotations

from typing import TypedDict


class Undivided(TypedDict):
    """The whole model, beside what one rank holds."""

    total_params: int
    weights_bytes: int
    kv_cache_bytes: int
    total_bytes: int


class UndividedFlops(TypedDict):
    """FLOPs of the whole model, beside those of one rank."""

    total_flops: int
    active_params: int
    rule_of_thumb_flops: int


class UndividedTraffic(TypedDict):
    """What the whole model's products move, beside those of one rank."""

    total_flops: int
    total_moved_bytes: int


class UndividedCache(TypedDict):
    """The cache of the whole model, beside what one rank keeps of it."""

    kv_bytes_per_token: int
    kv_bytes_next_token: int
    kv_cache_bytes: int


class UndividedStep(TypedDict):
    """The training step of the whole model, beside what one rank holds."""

    weights_bytes: int
    optimizer_bytes: int
    gradients_bytes: int
    saved_bytes: int
