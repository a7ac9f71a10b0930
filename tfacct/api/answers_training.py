"""The reports of a training step and of what ranks send, with the keys that they add to those of every model."""

from __future__ import annotations

from typing import Literal

from tfacct.api import lines as each
from tfacct.api import lines_ranks as ranks
from tfacct.reports import keys


class TrainReport(keys.ModelReport):
    """Bytes of a training step."""

    _line = each.TrainLine

    workload: keys.Workload
    dtype: str
    optimizer: str
    recompute: str
    micro_batch_size: int
    gradient_accumulation: int
    global_batch_size: int
    attention: Literal["sdpa", "eager"]
    loss: Literal["whole", "chunked"]
    weights_dtype: str
    master_weights: Literal["fp32"] | None
    gradient_dtype: str
    lora: str | None
    lora_adapters: each.Lora | None
    weights_bytes: int
    optimizer_bytes: int
    master_weights_bytes: int
    gradients_bytes: int
    packing: bool
    offload: str | None
    host_bytes: int
    moved_bytes: int
    saved_bytes: int
    peak_bytes: int
    peak_phase: str
    peak_least_bytes: int
    error_bound: float | None
    exact: bool
    mesh: keys.MeshFacts | None
    sent_bytes: int | None
    stage: int | None
    in_flight: int | None
    microbatches: int | None
    bubble: str | None
    bubble_ratio: float | None
    whole: ranks.UndividedStep | None
    phases: list[each.TrainPhase]
    saved: list[each.TrainLine]
    fit: each.TrainFit | None


class ExactTrainReport(keys.ModelReport):
    """Bytes of a training step, measured by running the model's class on the meta device."""

    _line = each.SavedByModule

    workload: keys.Workload
    class_name: str
    versions: dict[str, str]
    seconds: float
    attention: Literal["sdpa", "eager"]
    dtype: str
    optimizer: str
    recompute: Literal["none", "full", "attention"]
    loss: Literal["whole", "chunked"]
    weights_dtype: str
    lora: str | None
    weights_bytes: int
    optimizer_bytes: int
    gradients_bytes: int
    saved_bytes: int
    peak_bytes: int
    peak_phase: str
    exact: bool
    formula_saved_bytes: int | None
    formula_peak_bytes: int | None
    formula_error: float | None
    formula_why_not: str | None
    fit: each.ExactFit | None
