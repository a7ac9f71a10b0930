"""Errors of time estimates on measured runs that the constants had not seen."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tfacct.base.record import record
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import CHOSEN, CHUNK, RATES
from tfacct.loading.devices import Device
from tfacct.loading.links import Link

Model: TypeAlias = Literal["dense", "experts", "recurrent", "indexed", "compressed"]
Class: TypeAlias = Model | Literal["pcie", "amd", "training", "divided"]
Metric: TypeAlias = Literal["request", "token", "decode", "step", "corrected"]


@record
class Validation:
    """Errors of one class of models in one metric. Each cell (device × model × engine × weights) was predicted by
    constants fitted to the others.

    `on`: measured runs by device; `median` is a share of 1; `low` and `high` are the factors between which a run of
    another cell lies in 80% of cases. `coverage`: the share of runs that lie in the interval of the other cells, all
    cells weighing the same.
    """

    kind: Class
    metric: Metric
    cells: int
    on: Mapping[str, int]
    median: float
    coverage: float
    low: float
    high: float

    @property
    def runs(self) -> int:
        return sum(self.on.values())


@record
class Reported:
    """Median error on measured runs, and the share of them in the printed interval; then which steps they are."""

    runs: int
    median: float
    coverage: float
    stack: str = "Megatron-Bridge"
    fp8_only: bool = False
    chosen: bool = False
    also: str = ""


TABLE: Mapping[Any, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""The figures, whose file says what each is."""
CLASSES = {kind: figures for kind, figures in TABLE.items() if "on" in figures}
VALIDATED: Mapping[tuple[str, Metric], Validation] = {
    (kind, metric): Validation(kind, metric, **{"on": figures["on"], **figures[metric]})
    for kind, figures in CLASSES.items()
    for metric in get_args(Metric)
    if metric in figures
}
STORED: Mapping[str, Mapping[str, int]] = {kind: figures["stored"] for kind, figures in CLASSES.items()}
"""Measured runs by the format of weights; of training steps by that of products."""
FEW = 4
"""Largest number of concurrent requests that is few."""
FIRST_TOKEN: Mapping[str, Mapping[str, Sequence[int]]] = {
    kind: figures["first_token"] for kind, figures in CLASSES.items() if "first_token" in figures
}
"""By class, with few and with many requests: measured runs, and in how many of them the mean time to first token was at
most the upper end of its range."""
DRAFTED: Mapping[str, Any] = TABLE["drafted"]
"""Errors of the time per output token of runs with drafts."""
BASELINE: Mapping[bool, Mapping[str, Any]] = {False: TABLE["training"]["baseline"], True: TABLE["divided"]["baseline"]}
"""The plainest of predictions for a training step, by whether its layout is one of Megatron-LM."""
ENOUGH = 3
"""Measured runs of the user from which on the errors of corrected estimates hold."""


def reported(kind: str, metric: Metric) -> Reported:
    """The larger of the errors that were measured."""
    one = VALIDATED[kind, metric]
    return Reported(**TABLE[kind]["held_out"]) if kind == "training" else Reported(one.runs, one.median, one.coverage)


NEWER_STACKS: Mapping[str, Reported] = {name: Reported(**one) for name, one in TABLE["stacks"].items()}
"""Training steps of 2024 to 2026 under FSDP or DDP, in fp8."""
NEWER_LAYOUTS: Mapping[str, Reported] = {name: Reported(**one) for name, one in TABLE["newer"].items()}
"""The same of steps under other layouts, in other dtypes and of other models."""
NEWER_ENDS = 0.7, 1.45
"""Factors between which steps of other stacks lie: much wider than of these, as one model on the same cards differs by
1.7 between stacks."""


KINDS: Mapping[Model, frozenset[str]] = {
    "compressed": frozenset(RATES.values()),
    "indexed": frozenset((CHOSEN,)),
    "recurrent": frozenset((CHUNK,)),
}
"""Axes of models that have kernels of their own: for compressed keys, for keys that an indexer chooses, and for
recurrences."""
MODELS: Mapping[str, str] = {kind: figures["models"] for kind, figures in TABLE.items() if "models" in figures}
"""Models of each kind in words."""


def model_kind(ledger: Ledger) -> Model:
    """The kind of a model: the first of `KINDS` whose axes it has, else whether it has experts."""
    axes = {axis for group in ledger.groups for axis in group.axes}
    plain: Model = "experts" if ledger.experts else "dense"
    return next((kind for kind, special in KINDS.items() if not special.isdisjoint(axes)), plain)


def runs_in(kind: Class, stored: str) -> int:
    """Measured runs of a class with weights in this format."""
    plain = stored.split("+")[0].strip()
    same = {"fp8-block": "fp8", "fp16": "bf16"}.get(plain, plain)
    return STORED.get(kind, {}).get(same, 0)


def unmeasured_on(what: Literal["run", "step"], device: Device, link: Link | None, reaches: Sequence[str]) -> str:
    """The reason why the error on these devices is not known: their maker, or a link whose reach no measured run had;
    empty where runs like this were measured."""
    if device.vendor != "NVIDIA" and (what == "step" or device.id not in VALIDATED["amd", "request"].on):
        return f"No {what} on {device.vendor or 'such'} devices was measured"
    if "bf16" not in device.peak:
        return f"No {what} on devices without bf16 units was measured"
    if link is not None and link.reach not in reaches:
        return f"No {what} {link.place} was measured"
    return ""


def unmeasured_step(device: Device, link: Link | None, alike: str) -> str:
    """The reason why the error of a step is not known; empty where such steps were measured: over NVLink in a node, and
    a network between such nodes. `link`: of all devices. `alike`: the measured steps that it is like."""
    if alike not in NEWER_LAYOUTS and alike not in TABLE:
        return f"No step {alike} was measured"
    return unmeasured_on("step", device, link, ("domain", "network"))
