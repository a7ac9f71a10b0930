"""Names of metrics, for type checkers and editors. Written by `python docs/build.py` from `accounts.metrics`."""

from __future__ import annotations

from typing import Literal, TypeAlias

MetricName: TypeAlias = Literal[
    "total_flops",
    "flops_per_token",
    "rule_of_thumb_flops",
    "ratio_to_rule_of_thumb",
    "total_params",
    "active_params",
    "embedding_params",
    "non_embedding_params",
    "weights_bytes",
    "kv_cache_bytes",
    "kv_bytes_per_token",
    "kv_bytes_next_token",
    "total_bytes",
    "total_read_bytes",
    "total_written_bytes",
    "total_moved_bytes",
    "flops_per_byte",
    "saved_bytes",
    "gradients_bytes",
    "optimizer_bytes",
    "peak_bytes",
]
"""Metrics that every model has. `share.NAME` and `flops.NAME` of a product or part are names too."""
