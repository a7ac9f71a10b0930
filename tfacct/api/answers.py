"""The report of each command, with the keys that it adds to those of every model.

From these lists follow the attributes, what a type checker knows of them, and the schemas under docs/schema: no key is
written twice.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from tfacct.api import lines as each
from tfacct.api import lines_ranks as ranks
from tfacct.api.answer import Answer
from tfacct.architecture.parts import MlaMode


class _Common(Answer):
    """Keys that every model has. (`defaulted` and `notes` are the sentences of every Report.)"""

    _reserved: ClassVar[dict[str, Any]] = {"defaulted": dict[str, Any], "notes": list[str]}

    set: dict[str, Any]
    unknown: list[str]
    left_out: list[str]


class _Explained(_Common):
    """Keys of what `explain` derives. (`derivation` is a value of every Report.)"""

    _reserved: ClassVar[dict[str, Any]] = {"derivation": each.Derivation | None}


class FlopsReport(_Explained):
    """FLOPs of a forward pass or a training step."""

    _line = each.FlopsLine

    workload: each.Workload
    train: bool
    recompute: Literal["full", "attention", "none"]
    recomputed_flops: int
    total_flops: int
    flops_per_token: float
    total_params: int
    active_params: int
    rule_of_thumb_flops: int
    latent_attention: MlaMode | None
    total_flops_otherwise: each.Otherwise | None
    components: dict[str, int]
    never_called: list[str]
    total_flops_if_called: int | None
    pointwise: list[each.PointwiseLine] | None
    tp: int | None
    pp: int | None
    stage: int | None
    mesh: ranks.MeshFacts | None
    whole: ranks.UndividedFlops | None


class GenerateReport(_Common):
    """FLOPs of a whole request."""

    _line = each.GenerateLine

    workload: each.Workload
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


class TrafficReport(_Common):
    """Bytes that each product reads and writes."""

    _line = each.TrafficLine

    workload: each.Workload
    dtype_from: each.DtypeFrom
    published_dtype: str | None
    activation_dtype: str
    total_flops: int
    total_read_bytes: int
    total_written_bytes: int
    total_moved_bytes: int
    flops_per_byte: float
    latent_attention: MlaMode | None
    total_flops_otherwise: each.Otherwise | None
    tp: int | None
    pp: int | None
    stage: int | None
    mesh: ranks.MeshFacts | None
    whole: ranks.UndividedTraffic | None


class ParamsReport(_Explained):
    """Number of stored parameters."""

    _line = each.ParamsLine

    total_params: int
    embedding_params: int
    non_embedding_params: int
    active_params: int
    active_non_embedding_params: int
    tied_head: bool | None
    not_included: each.NotIncluded | None
    expected_params: int | None
    expected_from: str | None
    tp: int | None
    fsdp: int | None
    ep: int | None
    pp: int | None
    mesh: ranks.MeshFacts | None
    stage: int | None
    rank_params: int | None


class MemoryReport(_Explained):
    """Bytes of weights and of what is kept between steps."""

    _line = each.MemoryLine

    workload: each.Workload
    dtype_from: each.DtypeFrom
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
    not_included: each.NotIncluded | None
    fit: each.Fit | None
    batches: list[each.BatchLine] | None
    tp: int | None
    ep: int | None
    pp: int | None
    stage: int | None
    mesh: ranks.MeshFacts | None
    whole: ranks.Undivided | None


class KvReport(_Explained):
    """Bytes of the KV cache by context."""

    _line = each.KvLine

    workload: each.Workload
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
    mesh: ranks.MeshFacts | None
    whole: ranks.UndividedCache | None


class FormulaReport(_Common):
    """Formula of a count."""

    _line = each.FormulaLine
    workload: each.Workload | None
    biases_and_ties_of: str | None
    of: Literal["flops", "params", "kv", "train", "saved"]
    latent_attention: MlaMode | None
    total_formula: str
    total_text: str
    total_latex: str
    legend: dict[str, each.Letter]
    total_flops: int | None
    total_params: int | None
    kv_cache_elements: int | None
    kv_cache_bytes: int | None
    saved_bytes: int | None
    saved_by_layer: list[each.LayerFormula] | None


class DiffReport(_Common):
    """FLOPs, parameters and bytes before and after a change."""

    _line = each.DiffLine
    _reserved: ClassVar[dict[str, Any]] = {"totals": list[each.DiffTotal]}

    old_side: dict[str, Any]
    new_side: dict[str, Any]


class _Stepped(_Common):
    """Metrics, with the recipe where one is of a training step."""

    optimizer: str | None
    recompute: str | None
    attention: Literal["sdpa", "eager"] | None
    loss: Literal["whole", "chunked"] | None
    lora: str | None
    weights_dtype: str | None


class SweepReport(_Stepped):
    """Metrics at every combination of knobs."""

    _line = each.SweepLine

    workload: each.Workload
    dtype_from: each.DtypeFrom
    published_dtype: str | None
    kv_dtype: str
    train: bool
    swept: list[str]
    skipped: list[dict[str, Any]]
    metrics: list[str]


class SolveReport(_Stepped):
    """Last value of an unknown that an equation holds for."""

    _line = each.SolveLine
    # `for` is a word of Python.
    _reserved: ClassVar[dict[str, Any]] = {"for": str}

    workload: each.Workload
    dtype_from: each.DtypeFrom
    published_dtype: str | None
    kv_dtype: str
    train: bool
    until: str
    solution: int
    beyond: int | None
    again: int | None
    past_positions: str | None
    root: float | None
    closed_form: str | None


class ShowReport(_Common):
    """Fields of a config."""

    config: dict[str, Any]
    origin: dict[str, Any] | None


class VerifyReport(_Common):
    """Comparison of the formulas with every witness."""

    _line = each.VerifyLine
    # Of all models together, `agrees` is an attribute of every Report.
    _reserved: ClassVar[dict[str, Any]] = {"agrees": bool}

    workload: each.Workload
    blocks_traced: int
    block_count: int
    total_flops: int | None
    measured_flops: int | None
    expected_params: int | None
    witnesses: list[each.Witness]
    optimizer: str | None
    recompute: str | None
    attention: Literal["sdpa", "eager"] | None
    loss: Literal["whole", "chunked"] | None
    lora: str | None
    weights_dtype: str | None
    saved_bytes: int | None
    measured_saved_bytes: int | None
    mesh: ranks.MeshFacts | None
    plan: Literal["torch", "transformers"] | None
    rank_params: int | None
    measured_rank_params: int | None


class ProveReport(_Common):
    """Proof of a formula for all sizes."""

    by: Literal["symbols", "grid"]
    proven: bool
    legend: dict[str, each.Letter]
    statements: list[each.Statement]


class MeasureReport(_Common):
    """Seconds, FLOP/s and bytes of real runs."""

    _reserved: ClassVar[dict[str, Any]] = {"interrupted": bool}

    workload: each.Workload
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


class ModelsReport(_Common):
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
