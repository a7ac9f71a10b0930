"""Errors of time estimates on measured runs that the constants had not seen.

`VALIDATED` is the cross-validation that benchmarks/time_error.py recomputes; it fails where a figure no longer holds.
`REPORTED` is what answers claim: the worse of the cross-validation on clean rows and of cells that nobody fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from tfacct.base.record import record
from tfacct.loading.devices import Device
from tfacct.loading.links import Link

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


@record
class Reported:
    """Median error on measured runs, and the share of them in the printed interval."""

    runs: int
    median: float
    coverage: float


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
        Validation("training", "step", 167, 18, STEPS, 0.025, 0.976, 0.820, 0.94, 1.09),
        Validation("divided", "step", 18, 12, DIVIDED, 0.023, 1.0, 0.722, 0.94, 1.04),
    )
}
"""By class and metric: the time of a request, and that from token to token; of a training step of dense models under
FSDP, and divided by tensor and pipeline parallelism."""
REPORTED: Mapping[tuple[Class, Metric], Reported] = {
    ("dense", "request"): Reported(389, 0.079, 0.90),
    ("dense", "token"): Reported(389, 0.079, 0.97),
    ("experts", "request"): Reported(898, 0.113, 0.88),
    ("experts", "token"): Reported(370, 0.108, 0.93),
    ("training", "step"): Reported(49, 0.033, 0.92),
    ("divided", "step"): Reported(18, 0.023, 0.722),
}
"""By class and metric. A training step is one of MPT under FSDP (llm-foundry, 2023), or of GPT under Megatron-LM."""
NEWER_STACKS: Mapping[str, Reported] = {
    "torchtitan": Reported(9, 0.158, 0.29),
    "Megatron-Bridge in fp8": Reported(14, 0.64, 0.0),
}
"""Training steps of 2024 to 2026 under FSDP, in the interval of MPT: one set of constants does not serve all stacks."""
NEWER_LOW, NEWER_HIGH = 0.6, 1.35
"""Factors between which steps of all these stacks lie."""
MEASURED = "NVIDIA"
"""The maker of all devices that have measured runs."""


def unmeasured(what: Literal["run", "step"], device: Device, link: Link | None, reaches: Sequence[str]) -> str:
    """The reason why the error on these devices is not known: their maker, or a link whose reach no measured run had;
    empty where runs like this were measured."""
    if device.vendor != MEASURED:
        return f"No {what} on devices of {device.vendor or 'this maker'} was measured"
    if link is not None and link.reach not in reaches:
        return f"No {what} {link.place} was measured"
    return ""
