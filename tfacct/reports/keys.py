"""Keys that the facts of several reports share, as types. A report's own stand next to its facts."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NotRequired, TypeAlias, TypedDict

from tfacct.architecture.parts import MlaMode
from tfacct.output.answer import Answer

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


class Budgeted(ExactFit):
    """A memory limit, whether the question fits in it, and the largest context and batch that do."""

    past_positions: str | None
    context_limit: int | None
    largest_context: int | None
    largest_batch: int | None


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


class NotIncluded(TypedDict):
    """Layers that a config names and the counts do not include, with their size where it is known."""

    kind: Literal["MTP", "DSpark"]
    field: str
    layers: int
    params: int | None
    bytes: NotRequired[int | None]


class MeshFacts(TypedDict):
    """The ranks of a mesh."""

    tp: int
    sp: bool
    fsdp: int
    tp_plan: Literal["torch", "megatron"]
    ranks: int
    ep: int
    imbalance: float
    dp: int
    zero: int
    pp: int
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble"] | None
    microbatches: int | None
    pp_chunks: int
    cp: int
    cp_method: Literal["ring", "gather"] | None
    ulysses: int


class ModelReport(Answer):
    """Keys of every model. (`defaulted` and `notes` are the sentences of every Report.)"""

    _reserved: ClassVar[dict[str, Any]] = {"defaulted": dict[str, Any], "notes": list[str], "note_keys": list[str]}

    set: dict[str, Any]
    unknown: list[str]
    left_out: list[str]


class ExplainedReport(ModelReport):
    """Keys of a report that `explain` derives. (`derivation` is a value of every Report.)"""

    _reserved: ClassVar[dict[str, Any]] = {"derivation": Derivation | None}


class MetricsReport(ModelReport):
    """Metrics, with the recipe where one is of a training step."""

    optimizer: str | None
    recompute: str | None
    attention: Literal["sdpa", "eager"] | None
    loss: Literal["whole", "chunked"] | None
    lora: str | None
    weights_dtype: str | None
    workload: Workload
    dtype_from: DtypeFrom
    published_dtype: str | None
    kv_dtype: str
    train: bool
