"""Types of what stands inside a report's facts: its workload, and the lines behind its total. Keys are the JSON's."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from tfacct.reports import keys


class Fit(keys.Budgeted):
    """What of weights and cache fits a budget, and what it leaves free."""

    context_slack_bytes: int | None
    batch_slack_bytes: int | None
    context_stage: NotRequired[int]
    batch_stage: NotRequired[int]


class Pages(TypedDict):
    """Pages of the cache that a budget has room for, and how many requests of the context they hold at once."""

    page_bytes: int
    count: int
    tokens: int
    concurrency: float
    starts: bool
    largest_max_model_len: int


class BatchLine(TypedDict):
    """Bytes at one batch; with a budget, the largest context that fits at it."""

    batch: int
    weights_bytes: int
    kv_cache_bytes: int
    total_bytes: int
    largest_context: NotRequired[int | None]
    context_slack_bytes: NotRequired[int | None]
    fits: NotRequired[bool]


class FlopsLine(TypedDict):
    """One product. `blocks`: the kind of block, where kinds run it differently."""

    path: str
    spec: str
    blocks: NotRequired[str]
    m: int
    k: int
    n: int
    times: int
    flops: int
    forward_flops: NotRequired[int]
    backward_flops: NotRequired[int]


class PointwiseLine(TypedDict):
    """Work that is no product, in elements of its results."""

    path: str
    elements: int


class PhaseLine(TypedDict):
    """One product of a phase, by path or in full."""

    path: str
    spec: str
    flops: int


class Phase(TypedDict):
    """The prefill, or all decode steps."""

    phase: Literal["prefill", "decode"]
    step_count: int
    flops: int
    lines: list[PhaseLine]


class GenerateLine(TypedDict):
    """One product of a request. `decode_spec`: as the decode steps run it, null where they do not."""

    path: str
    spec: str | None
    decode_spec: str | None
    prefill_flops: int
    decode_flops: int
    flops: int


class TrafficLine(TypedDict):
    """One product, with the bytes that it moves."""

    path: str
    spec: str
    blocks: NotRequired[str]
    flops: int
    read_bytes: int
    written_bytes: int
    flops_per_byte: float | None


class ParamsLine(TypedDict):
    """One tensor, with its shape."""

    path: str
    shape: list[int]
    times: int
    params: int
    rank_params: NotRequired[int]


class MemoryLine(TypedDict):
    """A part of the weights, or a state that is kept."""

    what: str
    kind: Literal["weights", "cache"]
    elements: int
    dtype: str
    bytes: int


class TrainLine(TypedDict):
    """A tensor saved for the backward pass. `dtype`: null for a kernel's seed. `saved_for`: the operations whose
    gradients need it."""

    path: str
    part: str
    axes: str
    dtype: str | None
    count: int
    bytes: int
    saved_for: list[str]


class TrainPhase(TypedDict):
    """Bytes that are alive in one phase of a training step."""

    phase: str
    operation: str | None
    weights_bytes: int
    optimizer_bytes: int
    gradients_bytes: int
    saved_bytes: int
    temporary_bytes: int
    gathered_bytes: int
    total_bytes: int


class Lora(TypedDict):
    """Adapters of a training step: their products by our names, the class's modules, and their size."""

    rank: int
    dtype: str
    dropout: float
    weights: str
    products: list[str]
    modules: list[str]
    params: int
    bytes: int


class SavedByModule(TypedDict):
    """Bytes that modules of a class save for the backward pass, all layers together."""

    module: str
    bytes: int


class ExactFit(TypedDict):
    """Whether a step fits a budget of memory."""

    budget_bytes: int
    memory_bytes: int
    memory_from: str | None
    use: float
    reserve_bytes: int
    device: str | None
    devices: int
    fits: bool


class TrainFit(keys.Budgeted):
    """What of a training step fits a budget, and what would make more of it fit."""

    changes: list[dict[str, Any]]


class KvLine(TypedDict):
    """Bytes of the cache at one context."""

    keys: int
    mha: int | None
    as_built: int
    mqa: int | None
    whole_bytes: NotRequired[int]
