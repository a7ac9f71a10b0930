"""Seconds of the reference model on a calibrated machine: an estimate from the measured times of its kernels.

A line of the ledger takes what such work took at its size, read off between two sizes by logarithms. Nothing is fused:
the reference model runs line by line, joins its cache anew in each decode step, and lays keys out for each head that
shares them.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfacct.base import units
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, axis_names, size
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import Matmul, Pointwise, State, Table
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload
from tfacct.loading import calibration
from tfacct.loading.calibration import ACTIVATIONS, BACKWARD, BLOCK, WORK, Calibration, Checks, Curve, Pass, Swept
from tfacct.loading.devices import Device
from tfacct.loading.model import LoadedModel, load_model
from tfacct.output.report import Tick
from tfacct.timing.placement import unsupported_part
from tfacct.timing.validated import MODELS, model_kind

if TYPE_CHECKING:
    from tfacct.reference.calibrating import Case

HEAD = 64
"""Size of the heads that were swept."""
CACHE = 4 * 2**20
"""Bytes of weights up to which they are taken to stay in a cache from step to step."""
CONFIGS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""Models whose whole passes are timed: two that a sweep is checked against, and one of little but module calls."""
ONE = Workload(1, 1)
PASSES: Mapping[str, tuple[Workload, bool]] = {
    "forward": (Workload(96, 96), False),
    "decode": (Workload(160, 1, 2), False),
    "train": (Workload(48, 48), True),
}
"""Passes that a sweep is checked against, and whether each runs backward."""


class Taken(NamedTuple):
    """Seconds that lines of one name take in all blocks, how often they run, and their FLOPs."""

    name: str
    times: int
    flops: int
    seconds: float


class _Priced:
    """Prices of a group's lines."""

    def __init__(self, group: Group, at: Axes, run: Pass, cold: bool, on: Calibration, activation: str) -> None:
        self.group, self.axes, self.run, self.cold, self.on = group, group.bound(at), run, cold, on
        kind = ACTIVATIONS.get(activation, "gelu")
        gated = any(line.path.endswith("gate_proj") for line in group.lines)
        self.acts = (kind, "add") if gated else (kind,)

    def work(self, kind: str, *sizes: float) -> float:
        return sum(self.on.work[kind].at(elements, self.run) for elements in sizes)

    def taken(self) -> Iterator[Taken]:
        count, axes, trains = self.group.count, self.axes, self.run == "train"
        for line in self.group.lines:
            name = paths.short(line.path)
            if isinstance(line, Matmul):
                flops = count * line.flops(axes) * (3 if trains else 1)
                yield Taken(name, count, flops, count * self._matmul(line))
                if line.weight is not None and trains:
                    yield Taken("gradients of embeddings", 1, 0, self.work("sum", size(axes, line.weight_axes() or ())))
                if line.path == "lm_head" and trains:
                    yield Taken("loss", 1, 0, self.work("mean", size(axes, line.einsum.out)))
            elif isinstance(line, Pointwise):
                yield Taken("pointwise", count, 0, count * self._pointwise(line))
            elif isinstance(line, State) and axes["S"] > axes["T"]:
                yield Taken("cache joined", count, 0, count * self.work("join", size(axes, axis_names(line.spec))))
            elif isinstance(line, Table):
                rows = axes["B"] * axes["T"] * axes["D"]
                yield Taken("embeddings", 1, 0, self.on.work["rearrange"].at(rows, "forward"))
                if trains:
                    elements = size(axes, axis_names(line.spec))
                    yield Taken("gradients of embeddings", 1, 0, self.work("table", elements))
        if BLOCK in self.on.work and self.group.numbers:
            yield Taken("module calls", count, 0, count * self.work(BLOCK, 1))

    def _matmul(self, line: Matmul) -> float:
        if line.weight_axes() is not None:
            m, k, n, times = line.dims(self.axes)
            return self.on.product(m * times, k, n, self.run, self.cold)
        # Scores or values, each half of what both took; heads are laid out for the first of them.
        b, t, s, n, h = (self.axes[axis] for axis in "BTSNH")
        group = "shared" if self.axes.get("G", 1) > 1 else "own"
        curve = self.on.work[f"{group}_{'token' if t == 1 else 'heads'}"]
        seconds = curve.forward if self.run == "forward" else curve.train
        pairs = [swept if t == 1 else swept * swept for swept in curve.sizes]
        each = [taken / number for taken, number in zip(seconds, pairs, strict=True)]
        both = b * n * t * s * h / HEAD * calibration.between(curve.sizes, each, s if t == 1 else t)
        queries, keys = b * t * n * h, b * t * self.axes["K"] * h
        laid = self.work("rearrange", queries, queries, keys, keys) if "S" in line.einsum.out else 0.0
        return float(both / 2 + laid)

    def _pointwise(self, line: Pointwise) -> float:
        leaf, elements = line.path.rpartition(".")[2], line.elements(self.axes)
        if "S" in axis_names(line.spec):
            return self.work("softmax", elements)
        if leaf.endswith("rotary"):
            return self.work("rotary", elements)
        if leaf.endswith("norm"):
            return self.work("layer_norm" if line.bias else "rms_norm", elements)
        return sum(self.work(kind, elements) for kind in (self.acts if leaf == "act" else ("add",)))


@record
class ReferencePass:
    """A pass of the reference model on a machine that was swept; with `train` a backward pass follows. `weights`: bytes
    in the format of the sweep."""

    model: LoadedModel
    work: Workload
    train: bool
    on: Calibration
    weights: int
    parts: Sequence[Taken]

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    @property
    def interval(self) -> tuple[float, float]:
        """Seconds by the slowest and the fastest of the passes that the sweep was checked against."""
        low, high = self.on.checks.ends
        return self.seconds * low, self.seconds * high

    @property
    def flops(self) -> int:
        return sum(part.flops for part in self.parts)

    @property
    def bytes(self) -> int:
        """Bytes of weights and cache."""
        return self.weights + int(sum(self.model.ledger.state_bytes(self.work.axes(), width(self.on.dtype)).values()))

    def roofline(self, device: Device) -> float:
        """Seconds at the fastest product and the bandwidth of a copy, whichever takes longer."""
        moved = self.bytes * (3 if self.train else 1)
        return max(self.flops / device.peak[self.on.dtype], moved / device.bandwidth)

    @property
    def rate(self) -> float:
        return float(self.work.batch * self.work.tokens / self.seconds)


def reference_pass(model: LoadedModel, work: Workload, train: bool, on: Calibration) -> ReferencePass:
    """Seconds of the reference model's pass, by name. Raises ConfigError for a model that is not supported."""
    kind, latent = model_kind(model.ledger), "latent attention" if model.ledger.instead is not None else None
    odd = unsupported_part(model) or latent or (None if kind == "dense" else MODELS[kind])
    if odd is not None:
        raise ConfigError(f"{model.name}: a calibrated device does not support {odd}", "supported: dense decoders")
    parts = (sublayer.part for stack in model.architecture.stacks for sublayer in stack.block.sublayers)
    activation = next((name for part in parts if (name := getattr(part, "activation", None)) is not None), "gelu")
    weights = sum(model.ledger.parameters().values()) * units.BITS[on.dtype] // 8
    run: Pass = "train" if train else "forward"
    found = defaultdict[str, list[Taken]](list)
    for group in model.ledger.groups:
        for one in _Priced(group, work.axes(), run, weights > on.cache, on, activation).taken():
            found[one.name].append(one)
    taken = [
        Taken(name, sum(one.times for one in alike), sum(one.flops for one in alike), sum(one.seconds for one in alike))
        for name, alike in found.items()
    ]
    return ReferencePass(model, work, train, on, weights, taken)


class Sweep(NamedTuple):
    """What a sweep found: the calibration, and the machine's memory, bandwidth of a copy and fastest product."""

    found: Calibration
    memory: int
    bandwidth: float
    peak: float
    is_machine: bool


def sweep(device: str, dtype: str, progress: Tick) -> Sweep:
    """Time products, attention, copies and other work on this machine, then whole passes. Needs torch."""
    from tfacct.reference import calibrating, running

    on = running.device(device)
    of = running.dtype(units.dtype_name(dtype), on)
    models = {name: load_model(name, config) for name, config in CONFIGS.items()}
    small = models.pop("small")
    checked = {f"{name} {kind}": (model, *how) for name, model in models.items() for kind, how in PASSES.items()}
    passes = [*checked.values(), (small, ONE, False), (small, ONE, True)]
    given = [calibrating.Checked(model.architecture, work.sizes, train) for model, work, train in passes]
    cases = calibrating.sweep(on, of, given, lambda done, every: progress("sweeping", done, every))
    described, products = running.describe(on), [case for case in cases if case.kind == "product"]
    found = Calibration(
        machine=str(described["device_name"]),
        dtype=units.dtype_name(dtype),
        threads=int(str(described["threads"])),
        torch=str(described["torch"]),
        clock=calibrating.clock_of(on),
        read=date.today().isoformat(),
        cache=CACHE,
        products=tuple(
            Swept(*shape, _curve([one for one in products if one.shape == shape]))
            for shape in dict.fromkeys(case.shape for case in products)
        ),
        work={kind: _curve([case for case in cases if case.kind == kind]) for kind in (*WORK, *BACKWARD)},
        checks=Checks({"none": 1.0}),
    )
    *measured, forward, both = (case.seconds["forward"] for case in cases if case.kind == "whole")
    layers = CONFIGS["small"]["num_hidden_layers"]
    calls = [
        (max(1e-9, seconds - reference_pass(small, ONE, train, found).seconds) / layers,)
        for train, seconds in ((False, forward), (True, both))
    ]
    found = replace(found, work={**found.work, BLOCK: Curve((1,), *calls)})
    ratios = {
        name: seconds / reference_pass(*one, found).seconds
        for seconds, (name, one) in zip(measured, checked.items(), strict=True)
    }
    copied = next(case for case in cases if case.kind == "bandwidth")
    bandwidth = 2 * units.BITS[found.dtype] // 8 * copied.size / copied.seconds["forward"]
    peak = max(2 * one.size * one.shape[0] * one.shape[1] / one.seconds["forward"] for one in products)
    found = replace(found, checks=Checks(ratios))
    return Sweep(found, running.memory_bytes(on), bandwidth, peak, on.type == "cpu")


def _curve(cases: Sequence[Case]) -> Curve:
    """Seconds by size; where a case runs in one pass alone, the same for both."""
    each = sorted(cases, key=lambda case: case.size)
    forward = tuple(case.seconds.get("forward", case.seconds.get("train", 0.0)) for case in each)
    train = tuple(case.seconds.get("train", case.seconds.get("forward", 0.0)) for case in each)
    return Curve(tuple(case.size for case in each), forward, train)
