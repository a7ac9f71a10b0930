"""How far estimates of time were off, on measured runs that the constants had not seen. benchmarks/time_error.py prints
these figures, and fails where they no longer hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from tfacct.base.record import record

Class: TypeAlias = Literal["dense", "experts", "training", "divided"]
Metric: TypeAlias = Literal["request", "token", "step"]


@record
class Validation:
    """Errors of one class of models in one metric. Each cell (device × model × engine × weights) was predicted by
    constants fitted to the others.

    `runs` are measured runs, `on` how many of them by device; `median` and `coverage` are shares of 1; `low` and `high`
    are the factors between which 80 % of measured times lie, all cells weighing the same. `coverage`: the share of runs
    that lie in the interval of the other cells.
    """

    kind: Class
    metric: Metric
    runs: int
    cells: int
    on: Mapping[str, int]
    median: float
    near: float
    coverage: float
    low: float
    high: float


STORED: Mapping[Class, Mapping[str, int]] = {
    "dense": {"bf16": 168, "fp8": 398, "nvfp4": 60},
    "experts": {"fp8": 461, "int4": 80, "mxfp4": 254, "nvfp4": 326},
    "training": {"bf16": 160, "fp8": 7},
    "divided": {"bf16": 18},
}
"""Measured runs by the format of weights; of training steps by that of products."""
DENSE = {"b200-hgx": 120, "h100-sxm": 389, "h200-sxm": 117}
EXPERTS = {"b200-hgx": 490, "b300-hgx": 162, "h100-sxm": 160, "h200-sxm": 309}
DIVIDED = {"a100-sxm-80gb": 18}
STEPS = {"a100-sxm-40gb": 78, "a100-sxm-80gb": 26, "h100-sxm": 63}
VALIDATED: Mapping[tuple[Class, Metric], Validation] = {
    (one.kind, one.metric): one
    for one in (
        Validation("dense", "request", 626, 9, DENSE, 0.052, 0.936, 0.871, 0.70, 1.15),
        Validation("dense", "token", 626, 9, DENSE, 0.065, 0.871, 0.885, 0.72, 1.25),
        Validation("experts", "request", 1121, 21, EXPERTS, 0.132, 0.684, 0.796, 0.81, 1.42),
        Validation("experts", "token", 1121, 21, EXPERTS, 0.134, 0.672, 0.790, 0.80, 1.39),
        Validation("training", "step", 167, 18, STEPS, 0.024, 0.970, 0.796, 0.94, 1.09),
        Validation("divided", "step", 18, 12, DIVIDED, 0.023, 1.0, 0.722, 0.94, 1.04),
    )
}
"""By class and metric: the time of a request, and that from token to token; of a training step of dense models under
FSDP, and divided by tensor and pipeline parallelism."""
