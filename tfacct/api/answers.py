"""The report of each command, with the keys that it adds to those of every model.

From these lists follow the attributes, what a type checker knows of them, and the schemas under docs/schema: no key is
written twice.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from tfacct.api import lines as each
from tfacct.api import lines_ranks as ranks
from tfacct.architecture.parts import MlaMode
from tfacct.reports import keys


class FlopsReport(keys.ExplainedReport):
    """FLOPs of a forward pass or a training step."""

    _line = each.FlopsLine

    workload: keys.Workload
    train: bool
    recompute: Literal["full", "attention", "none"]
    recomputed_flops: int
    total_flops: int
    flops_per_token: float
    total_params: int
    active_params: int
    rule_of_thumb_flops: int
    latent_attention: MlaMode | None
    total_flops_otherwise: keys.Otherwise | None
    components: dict[str, int]
    never_called: list[str]
    total_flops_if_called: int | None
    pointwise: list[each.PointwiseLine] | None
    tp: int | None
    pp: int | None
    stage: int | None
    mesh: keys.MeshFacts | None
    whole: ranks.UndividedFlops | None


class GenerateReport(keys.ModelReport):
    """FLOPs of a whole request."""

    _line = each.GenerateLine

    workload: keys.Workload
    prompt_tokens: int
    new_tokens: int
    decode_steps: int
    prefill_latent_attention: MlaMode | None
    decode_latent_attention: MlaMode | None
    total_flops: int
    prefill_flops: int
    decode_flops: int
    flops_per_prompt_token: float
    flops_per_new_token: float | None
    phases: list[each.Phase]


class TrafficReport(keys.ModelReport):
    """Bytes that each product reads and writes."""

    _line = each.TrafficLine

    workload: keys.Workload
    dtype_from: keys.DtypeFrom
    published_dtype: str | None
    activation_dtype: str
    total_flops: int
    total_read_bytes: int
    total_written_bytes: int
    total_moved_bytes: int
    flops_per_byte: float
    latent_attention: MlaMode | None
    total_flops_otherwise: keys.Otherwise | None
    tp: int | None
    pp: int | None
    stage: int | None
    mesh: keys.MeshFacts | None
    whole: ranks.UndividedTraffic | None


class ParamsReport(keys.ExplainedReport):
    """Number of stored parameters."""

    _line = each.ParamsLine

    total_params: int
    embedding_params: int
    non_embedding_params: int
    active_params: int
    active_non_embedding_params: int
    tied_head: bool | None
    not_included: keys.NotIncluded | None
    expected_params: int | None
    expected_from: str | None
    tp: int | None
    fsdp: int | None
    ep: int | None
    pp: int | None
    mesh: keys.MeshFacts | None
    stage: int | None
    rank_params: int | None


class MemoryReport(keys.ExplainedReport):
    """Bytes of weights and of what is kept between steps."""

    _line = each.MemoryLine

    workload: keys.Workload
    dtype_from: keys.DtypeFrom
    published_dtype: str | None
    kv_dtype: str
    kv_block: int | None
    kv_page_bytes: int | None
    pages: each.Pages | None
    total_params: int
    weights_bytes: int
    weights_low_bytes: int | None
    weights_high_bytes: int | None
    total_low_bytes: int | None
    total_high_bytes: int | None
    range_reason: str | None
    kv_cache_bytes: int
    kv_cache_bytes_without_windows: int
    kv_bytes_per_token: int
    kv_bytes_next_token: int
    total_bytes: int
    not_included: keys.NotIncluded | None
    fit: each.Fit | None
    batches: list[each.BatchLine] | None
    tp: int | None
    ep: int | None
    pp: int | None
    stage: int | None
    mesh: keys.MeshFacts | None
    whole: ranks.Undivided | None


class KvReport(keys.ExplainedReport):
    """Bytes of the KV cache by context."""

    _line = each.KvLine

    workload: keys.Workload
    query_heads: int | None
    query_heads_by_block: list[int] | None
    kv_heads: int | None
    kv_heads_by_block: list[int] | None
    kv_bytes_per_token: int
    kv_bytes_next_token: int
    kv_cache_bytes: int
    kv_cache_bytes_without_windows: int
    self_kv_cache_bytes: int
    cross_kv_cache_bytes: int
    tp: int | None
    pp: int | None
    stage: int | None
    mesh: keys.MeshFacts | None
    whole: ranks.UndividedCache | None


class ShowReport(keys.ModelReport):
    """Fields of a config."""

    config: dict[str, Any]
    origin: dict[str, Any] | None


class MeasureReport(keys.ModelReport):
    """Seconds, FLOP/s and bytes of real runs."""

    _reserved: ClassVar[dict[str, Any]] = {"interrupted": bool}

    workload: keys.Workload
    device: str
    device_name: str
    torch: str
    threads: int | None
    attention: str
    latent_attention: MlaMode | None
    train: bool
    runs: int
    seconds_min: float
    seconds_median: float
    seconds_max: float
    tokens_per_second: float
    total_flops: int
    masked_flops: int
    flops_per_second: float
    masked_flops_per_second: float
    peak_flops_per_second: float | None
    mfu: float | None
    masked_mfu: float | None
    weights_bytes: int
    measured_weights_bytes: int
    kv_cache_bytes: int
    measured_kv_cache_bytes: int | None
    peak_bytes: int | None
    forward_flops: int
    counted_flops: int


class ModelsReport(keys.ModelReport):
    """The presets, one by one."""

    _reserved: ClassVar[dict[str, Any]] = {"from": str | None}

    total_params: int
    context: int
    layers: int
    hidden: int
    heads: int | None
    heads_by_block: list[int] | None
    kv_heads: int | None
    kv_heads_by_block: list[int] | None
    url: str | None
    expected_from: str | None
