"""Errors of time estimates on measured runs that the constants had not seen.

`VALIDATED` is the cross-validation that benchmarks/time_error.py recomputes; it fails where a figure no longer holds.
`HELD_OUT` are training steps that nobody fitted; their error is larger than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from tfacct.base.record import record
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import CHOSEN, CHUNK, RATES
from tfacct.loading.devices import Device
from tfacct.loading.links import Link
from tfacct.timing.kernels import STREAMS

Model: TypeAlias = Literal["dense", "experts", "recurrent", "indexed", "compressed"]
Class: TypeAlias = Model | Literal["pcie", "amd", "training", "divided"]
Metric: TypeAlias = Literal["request", "token", "decode", "step", "corrected"]


@record
class Validation:
    """Errors of one class of models in one metric. Each cell (device × model × engine × weights) was predicted by
    constants fitted to the others.

    `on`: measured runs by device; `median` is a share of 1, `near` the share of runs within 20%; `low` and `high` are
    the factors between which 80% of measured times lie, all cells weighing the same; all of them where there are fewer
    than six cells. `coverage`: the share of runs that lie in the interval of the other cells.
    """

    kind: Class
    metric: Metric
    cells: int
    on: Mapping[str, int]
    median: float
    near: float
    coverage: float
    low: float
    high: float

    @property
    def runs(self) -> int:
        """Number of measured runs."""
        return sum(self.on.values())


@record
class Reported:
    """Median error on measured runs, and the share of them in the printed interval."""

    runs: int
    median: float
    coverage: float


@record
class FirstToken:
    """Measured runs, and in how many of them the mean time to first token was at most the upper end of its range."""

    runs: int
    in_time: int


FEW = 4
"""Largest number of concurrent requests that is few."""
FIRST_TOKEN: Mapping[tuple[Class, bool], FirstToken] = {
    ("dense", True): FirstToken(45, 42),
    ("dense", False): FirstToken(566, 562),
    ("experts", True): FirstToken(164, 113),
    ("experts", False): FirstToken(734, 669),
    ("recurrent", True): FirstToken(14, 8),
    ("recurrent", False): FirstToken(62, 61),
    ("indexed", True): FirstToken(8, 4),
    ("indexed", False): FirstToken(33, 33),
}
"""By class, and whether the requests were few."""
STORED: Mapping[Class, Mapping[str, int]] = {
    "dense": {"bf16": 292, "fp8": 535, "nvfp4": 103},
    "experts": {"bf16": 105, "fp8": 439, "int4": 44, "mxfp4": 281, "nvfp4": 374},
    "recurrent": {"bf16": 36, "fp8": 16, "nvfp4": 24},
    "indexed": {"fp8": 31, "nvfp4": 10},
    "pcie": {"bf16": 52, "fp8": 9},
    "amd": {"fp8": 19},
    "training": {"bf16": 160, "fp8": 7},
    "divided": {"bf16": 18},
}
"""Measured runs by the format of weights; of training steps by that of products."""
DENSE = {"b200-hgx": 120, "h100-sxm": 385, "h200-sxm": 106}
EXPERTS = {"b200-hgx": 351, "b300-hgx": 131, "h100-sxm": 159, "h200-sxm": 257}
DECODING = {"b200-hgx": 46, "gb200": 44, "gb300": 21}
RECURRENT = {"b200-hgx": 16, "b300-hgx": 44, "h200-sxm": 16}
INDEXED = {"b200-hgx": 28, "h200-sxm": 13}
PCIE = {"a100-pcie-80gb": 52, "l40s": 9}
AMD = {"mi300x": 19}
DIVIDED = {"a100-sxm-80gb": 18}
STEPS = {"a100-sxm-40gb": 78, "a100-sxm-80gb": 26, "h100-sxm": 63}
VALIDATED: Mapping[tuple[Class, Metric], Validation] = {
    (one.kind, one.metric): one
    for one in (
        Validation("dense", "request", 8, DENSE, 0.054, 0.951, 0.833, 0.86, 1.14),
        Validation("dense", "token", 8, DENSE, 0.074, 0.853, 0.781, 0.79, 1.20),
        Validation("dense", "corrected", 8, DENSE, 0.044, 0.954, 0.839, 0.91, 1.14),
        Validation("experts", "request", 19, EXPERTS, 0.092, 0.862, 0.870, 0.83, 1.30),
        Validation("experts", "token", 19, EXPERTS, 0.092, 0.862, 0.825, 0.85, 1.29),
        Validation("experts", "corrected", 19, EXPERTS, 0.077, 0.864, 0.835, 0.85, 1.25),
        Validation("experts", "decode", 9, DECODING, 0.097, 0.838, 0.783, 0.83, 1.17),
        Validation("recurrent", "request", 4, RECURRENT, 0.133, 0.671, 0.716, 0.78, 1.94),
        Validation("indexed", "request", 3, INDEXED, 0.156, 0.634, 0.867, 1.00, 1.73),
        Validation("pcie", "request", 3, PCIE, 0.070, 0.869, 0.675, 0.80, 1.42),
        Validation("amd", "request", 5, AMD, 0.042, 1.0, 0.675, 0.89, 1.23),
        Validation("training", "step", 18, STEPS, 0.025, 0.982, 0.830, 0.93, 1.11),
        Validation("divided", "step", 12, DIVIDED, 0.023, 1.0, 0.833, 0.92, 1.05),
    )
}
"""By class and metric: the time of a request, also corrected by `ENOUGH` other runs of its cell, that from token to
token, and that of a decode step of workers that only decode; of a training step of dense models under FSDP, and divided
by tensor and pipeline parallelism."""
NEVER_FITTED: frozenset[Class] = frozenset(("recurrent", "indexed"))
"""Classes whose runs no constant was fitted to."""
ENOUGH = 3
"""Measured runs of the user from which on the errors of corrected estimates hold."""
HELD_OUT = Reported(49, 0.033, 0.92)
"""Of steps of MPT under FSDP (llm-foundry, 2023)."""


def reported(kind: Class, metric: Metric) -> Reported:
    """The larger of the errors that were measured."""
    one = VALIDATED[kind, metric]
    return HELD_OUT if kind == "training" else Reported(one.runs, one.median, one.coverage)


NEWER_STACKS: Mapping[str, Reported] = {
    "torchtitan": Reported(2, 0.086, 1.0),
    "Megatron-Bridge": Reported(9, 0.092, 1.0),
}
"""Training steps of 2024 to 2026 under FSDP or DDP, in fp8. The share of attention was chosen by those of
Megatron-Bridge."""
LAYOUTS, CONTEXT, SHARDED = "with TP and PP", "with context parallelism", "under FSDP with other axes"
IN_NVFP4, ADAPTERS, EXPERTS_BALANCED = "in nvfp4", "of LoRA", "of MoE models with balanced routing"
NEWER_LAYOUTS: Mapping[str, Reported] = {
    LAYOUTS: Reported(17, 0.131, 1.0),
    CONTEXT: Reported(14, 0.038, 0.786),
    SHARDED: Reported(11, 0.175, 0.727),
    IN_NVFP4: Reported(13, 0.112, 1.0),
    ADAPTERS: Reported(5, 0.109, 1.0),
    EXPERTS_BALANCED: Reported(76, 0.125, 0.842),
}
"""The same of steps under other layouts, in other dtypes and of other models, of Megatron-Bridge and torchtitan. The
shares that nvfp4 and experts attain were chosen by them; no other constant was."""
NEWER_LOW, NEWER_HIGH = 0.7, 1.45
"""Factors between which steps of other stacks lie: much wider than of these, as one model on the same cards differs by
1.7 between stacks."""
MEASURED = "NVIDIA"
"""The maker of all devices that the constants were fitted to."""


KINDS: Mapping[Model, frozenset[str]] = {
    "compressed": frozenset(RATES.values()),
    "indexed": frozenset((CHOSEN,)),
    "recurrent": frozenset((CHUNK,)),
}
"""Axes of models that have kernels of their own: for compressed keys, for keys that an indexer chooses, and for
recurrences."""
MODELS: Mapping[Model, str] = {
    "dense": "dense models",
    "experts": "MoE models",
    "recurrent": "recurrent models",
    "indexed": "models with an indexer",
    "compressed": "models with compressed keys",
}
"""Models of each kind in words."""


def model_kind(ledger: Ledger) -> Model:
    """The kind of a model: the first of `KINDS` whose axes it has, else whether it has experts."""
    axes = {axis for group in ledger.groups for axis in group.axes}
    plain: Model = "experts" if ledger.experts else "dense"
    return next((kind for kind, special in KINDS.items() if not special.isdisjoint(axes)), plain)


def class_of(ledger: Ledger, device: Device, link: Link | None) -> Class:
    """The class of runs whose errors are those of such a run."""
    if device.vendor == "AMD":
        return "amd"
    if link is not None and link.reach == "node":
        return "pcie"
    return model_kind(ledger)


def unmeasured_run(ledger: Ledger, device: Device, link: Link | None, stored: str) -> str:
    """The reason why the error of serving is not known; empty where runs like this were measured. `stored`: the format
    of weights.

    The rule for every interval: runs were measured of such models, with weights in this format, on devices of this
    maker with bf16 units, and over a link of this reach.
    """
    kind = model_kind(ledger)
    if kind == "compressed":
        return "The only measured runs of a model with compressed keys had a prefix cache"
    if kind == "recurrent" and (not ledger.experts or ledger.instead is not None):
        return "No run of a recurrent model without experts or with latent attention was measured"
    if kind == "indexed" and ledger.instead is None:
        return "No run of a model with an indexer and without latent attention was measured"
    if any(STREAMS in group.axes for group in ledger.groups):
        return "No run of a model with several residual streams was measured"
    if device.id in AMD:
        if ledger.experts:
            return "No run of a model with experts on devices of AMD was measured"
        return "" if link is None or link.reach == "domain" else f"No run {link.place} was measured"
    if runs_in(kind, stored) == 0:
        return f"No run with {stored} weights was measured"
    return unmeasured("run", device, link, ("domain", "node") if kind in ("dense", "experts") else ("domain",))


def runs_in(kind: Class, stored: str) -> int:
    """Measured runs of a class with weights in this format."""
    plain = stored.split("+")[0].strip()
    same = {"fp8-block": "fp8", "fp16": "bf16"}.get(plain, plain)
    return STORED[kind].get(same, 0)


def unmeasured(what: Literal["run", "step"], device: Device, link: Link | None, reaches: Sequence[str]) -> str:
    """The reason why the error on these devices is not known: their maker, or a link whose reach no measured run had;
    empty where runs like this were measured."""
    if device.vendor != MEASURED:
        return f"No {what} on devices of {device.vendor or 'this maker'} was measured"
    if "bf16" not in device.peak:
        return f"No {what} on devices without bf16 units was measured"
    if link is not None and link.reach not in reaches:
        return f"No {what} {link.place} was measured"
    return ""
