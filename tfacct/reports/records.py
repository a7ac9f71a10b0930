"""Keys of each report's JSON that only some questions have an answer for: they are always there, null without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STAGE = ("tp", "pp", "stage", "mesh", "whole")
_RANGE = ("weights_low_bytes", "weights_high_bytes", "total_low_bytes", "total_high_bytes", "range_reason")
_PIPELINE = ("stage", "microbatches", "bubble", "bubble_ratio")
_RECIPE = ("optimizer", "recompute", "attention", "loss", "lora", "weights_dtype")
NULLABLE: Mapping[str, tuple[str, ...]] = {
    "flops": ("derivation", "pointwise", *_STAGE),
    "flops-bytes": _STAGE,
    "params": ("derivation", "tp", "fsdp", "ep", "pp", "mesh", "stage", "rank_params"),
    "memory": ("derivation", *_RANGE, "fit", "batches", "kv_block", "kv_page_bytes", "pages", "ep", *_STAGE),
    "kv": ("derivation", *_STAGE),
    "fit": _RANGE,
    "formula": ("total_flops", "total_params", "kv_cache_elements", "kv_cache_bytes", "saved_bytes", "saved_by_layer"),
    "sweep": _RECIPE,
    "solve": _RECIPE,
    "train": ("in_flight", *_PIPELINE),
    "comms": ("stages", *_PIPELINE),
    "verify": (
        *("total_flops", "measured_flops", "expected_params", *_RECIPE, "saved_bytes", "measured_saved_bytes"),
        *("mesh", "plan", "rank_params", "measured_rank_params"),
    ),
}
"""By the name of the schema: a command, and the option that makes another report of it."""


def whole(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts about a model with every key that its report has."""
    return {**facts, **{key: None for key in NULLABLE.get(name, ()) if key not in facts}}
