"""Types of what stands inside a report's facts: its workload, and the lines behind its total. Keys are the JSON's."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from tfacct.architecture.parts import MlaMode

DtypeFrom: TypeAlias = Literal["given", "published", "assumed"]
"""Where the format of weights is from: the user, a config or the files next to it, or nobody."""


class Workload(TypedDict):
    """Sequences, new tokens and keys of a step."""

    batch: int
    tokens: int
    keys: int
    source: int | None
    logits: Literal["all", "last"] | None
    masked: bool
    dtype: str | None


class LinkUsed(TypedDict):
    """The link of so many devices; bytes per second of one, one way."""

    devices: int
    reach: Literal["domain", "node", "network"]
    kind: str
    bytes_per_second: int


class Otherwise(TypedDict):
    """The form of latent attention that a step does not run in, and its FLOPs."""

    latent_attention: MlaMode
    total_flops: int


class Budgeted(TypedDict):
    """A budget of memory, whether the question fits in it, and the largest context and batch that do."""

    budget_bytes: int
    memory_bytes: int
    memory_from: str | None
    use: float
    reserve_bytes: int
    device: str | None
    devices: int
    fits: bool
    past_positions: str | None
    context_limit: int | None
    largest_context: int | None
    largest_batch: int | None


class Fit(Budgeted):
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


class Letter(TypedDict):
    """Meaning of a letter, and its value in a model."""

    meaning: str
    value: NotRequired[int]


class Step(TypedDict):
    """A line of a derivation: `letters` = `numbers` = `result`."""

    path: str
    step: str
    spec: str
    gradients: NotRequired[list[str]]
    letters: str
    numbers: str
    result: int


class Component(TypedDict):
    """Steps that are summed under one name."""

    component: str
    steps: list[Step]
    total: int


class Derivation(TypedDict):
    """A total that a reader can do again by hand."""

    unit: str
    takeaway: str | None
    check: str | None
    legend: dict[str, Letter]
    parts: list[Component]
    total: int


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


class NotIncluded(TypedDict):
    """Layers that a config names and the counts do not include, with their size where it is known."""

    kind: Literal["MTP", "DSpark"]
    field: str
    layers: int
    params: int | None
    bytes: NotRequired[int | None]


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


class TrainFit(Budgeted):
    """What of a training step fits a budget, and what would make more of it fit."""

    changes: list[dict[str, Any]]


class KvLine(TypedDict):
    """Bytes of the cache at one context."""

    keys: int
    mha: int | None
    as_built: int
    mqa: int | None
    whole_bytes: NotRequired[int]


class FormulaLine(TypedDict):
    """One product, tensor or state in letters."""

    path: str
    spec: NotRequired[str]
    flops_formula: NotRequired[str]
    params_formula: NotRequired[str | None]
    elements_formula: NotRequired[str]
    bytes_formula: NotRequired[str]
    flops_value: NotRequired[int]
    params_value: NotRequired[int]
    elements_value: NotRequired[int]
    bytes_value: NotRequired[int]
    latex: str


class LayerFormula(TypedDict):
    """What one layer of a kind saves for its backward pass, in symbols."""

    kind: str
    bytes_formula: str
    text: str


class DiffTotal(TypedDict):
    """One total, before and after."""

    path: str
    unit: str
    old: float | None
    new: float | None
    delta: float


class DiffLine(TypedDict):
    """One product or tensor before and after, with its shares in all FLOPs or parameters."""

    path: str
    unit: str
    old: float | None
    new: float | None
    delta: float
    old_share: float | None
    new_share: float | None


class Witness(TypedDict):
    """One check: two totals, and the paths where they differ."""

    witness: str
    unit: str
    counted: int
    measured: int
    equal: bool
    error: NotRequired[float]
    differing: dict[str, list[int | None]]


class VerifyLine(TypedDict):
    """One product of one block, by the formula and by fvcore; or what the class's modules keep in a training step; or a
    parameter of the class on one rank."""

    path: str
    flops: NotRequired[int | None]
    measured_flops: NotRequired[int | None]
    saved_bytes: NotRequired[int | None]
    measured_saved_bytes: NotRequired[int | None]
    rank_params: NotRequired[int | None]
    measured_rank_params: NotRequired[int | None]
    equal: bool


class Statement(TypedDict):
    """One statement of a proof."""

    what: str
    formula: str | None
    difference: str
    evidence: str
    proven: bool


SweepLine: TypeAlias = dict[str, Any]
"""One combination: the knobs and the metrics by their names."""
SolveLine: TypeAlias = dict[str, Any]
"""One candidate: the unknown by its name, and both sides, `left` and `right`."""


class CheckpointFile(TypedDict):
    """A file of weights."""

    file: str
    bytes: int
    tensors: int


class CheckpointDifference(TypedDict):
    """A path of the ledger, or a tensor of the files, how the sides differ there, and in how many tensors alike."""

    path: str
    difference: str
    tensors: int


class NotStored(TypedDict):
    """A tensor that the files need not hold."""

    tensor: str
    why: str


class CheckpointLine(TypedDict):
    """Tensors of a part in one dtype. `what` they are, where they are not plain numbers."""

    part: str
    dtype: str
    what: str
    tensors: int
    elements: int
    bytes: int
