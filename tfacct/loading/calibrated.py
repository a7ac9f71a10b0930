"""Seconds of the reference model on a machine that was swept: an estimate from what its kernels took there.

The sweep (`measure --calibrate`) times products, attention, copies and other work at a few sizes. A line of the ledger
takes what such work took at its size, read off between two sizes by logarithms. Nothing is fused: the reference model
runs line by line, joins its cache anew in each decode step, and lays keys out for each head that shares them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from math import exp, log
from typing import Any, Literal, NamedTuple

from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, letters, size
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import Matmul, Pointwise, State, Table
from tfacct.ledger.workload import Workload

Pass = Literal["forward", "train"]
"""A forward pass, or that with a backward pass behind it."""
DOUBTFUL = 0.25
"""Median error of its own checks above which a sweep is doubted."""
HEAD = 64
"""Size of the heads that were swept."""
ACTIVATIONS: Mapping[str, str] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}
"""Kinds of work by the names of activations; others are taken to be gelu."""
WORK = (
    *("layer_norm", "rms_norm", "add", "mean", "rearrange", "join", "rotary", "softmax"),
    *dict.fromkeys(ACTIVATIONS.values()),
    *("own_heads", "shared_heads", "own_token", "shared_token"),
)
"""Kinds of work that a sweep times, forward and backward."""
BLOCK = "block"
"""Kind of work that is what a block takes beside all other kinds: the calls of its modules, views, masks."""
BACKWARD = ("table", "sum")
"""Kinds of work of a backward pass alone: a table's gradient, and the sum of two, as a tied head has."""


@record
class Curve:
    """Seconds by size, which rises: of a forward pass, and of that with a backward pass behind it."""

    sizes: tuple[int, ...]
    forward: tuple[float, ...]
    train: tuple[float, ...]

    def at(self, wanted: float, run: Pass) -> float:
        """Seconds at a size: between two by logarithms, beyond the last in proportion, below the first as there."""
        seconds = self.forward if run == "forward" else self.train
        if wanted >= self.sizes[-1]:
            return seconds[-1] * wanted / self.sizes[-1]
        return between(self.sizes, seconds, wanted)


def between(sizes: Sequence[float], values: Sequence[float], wanted: float) -> float:
    """Value at a size, between two by logarithms; outside, that of the nearest."""
    if wanted <= sizes[0] or len(sizes) == 1:
        return values[0]
    if wanted >= sizes[-1]:
        return values[-1]
    after = bisect_left(sizes, wanted)
    share = log(wanted / sizes[after - 1]) / log(sizes[after] / sizes[after - 1])
    return exp(log(values[after - 1]) * (1 - share) + log(values[after]) * share)


@record
class Swept:
    """Products with a weight of `inputs` × `outputs`, by rows. `cold`: no cache held the weight."""

    inputs: int
    outputs: int
    cold: bool
    rows: Curve

    @property
    def elements(self) -> int:
        """Number of elements of the weight."""
        return self.inputs * self.outputs


@record
class Checks:
    """What a calibration was held against, on the same machine: measured over predicted seconds of whole passes, by
    their names."""

    ratios: Mapping[str, float]

    @property
    def error(self) -> float:
        """Median error of a prediction."""
        off = sorted(abs(1 / ratio - 1) for ratio in self.ratios.values())
        middle = len(off) // 2
        return off[middle] if len(off) % 2 else (off[middle - 1] + off[middle]) / 2

    @property
    def doubtful(self) -> bool:
        """True if the sweep does not tell what whole passes took: others used the machine, or its threads waited."""
        return self.error > DOUBTFUL

    @property
    def ends(self) -> tuple[float, float]:
        """Factors between which all of them lay."""
        return min(self.ratios.values()), max(self.ratios.values())


@record
class Calibration:
    """What a sweep found: on which machine, with which torch, threads and clock, and when; seconds by kind of work.

    `cache`: bytes of weights up to which they are taken to stay in a cache from step to step.
    """

    machine: str
    dtype: str
    threads: int
    torch: str
    clock: str
    read: str
    cache: int
    products: tuple[Swept, ...]
    work: Mapping[str, Curve]
    checks: Checks

    def product(self, m: int, k: int, n: int, run: Pass, cold: bool) -> float:
        """Seconds of a product of m × k by k × n with a weight."""
        alike = sorted((one for one in self.products if one.cold is cold), key=lambda one: one.elements)
        each = [one.rows.at(m, run) / one.elements for one in alike]
        return float(k * n * between([one.elements for one in alike], each, k * n))


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
        self.count = group.count
        kind = ACTIVATIONS.get(activation, "gelu")
        gated = any(line.path.endswith("gate_proj") for line in group.lines)
        self.acts = (kind, "add") if gated else (kind,)

    def work(self, kind: str, elements: float) -> float:
        return self.on.work[kind].at(elements, self.run)

    def taken(self) -> Iterator[Taken]:
        for line in self.group.lines:
            name = paths.short(line.path)
            if isinstance(line, Matmul):
                flops = self.count * line.flops(self.axes) * (3 if self.run == "train" else 1)
                yield Taken(name, self.count, flops, self.count * self._matmul(line))
                if line.weight is not None and self.run == "train":
                    axes = line.weight_axes() or ()
                    yield Taken("gradients of tables", 1, 0, self.work("sum", size(self.axes, axes)))
                if line.path == "lm_head" and self.run == "train":
                    yield Taken("loss", 1, 0, self.work("mean", size(self.axes, line.einsum.out)))
            elif isinstance(line, Pointwise):
                yield Taken("pointwise", self.count, 0, self.count * self._pointwise(line))
            elif isinstance(line, State) and self.axes["S"] > self.axes["T"]:
                joined = self.work("join", size(self.axes, letters(line.spec)))
                yield Taken("cache joined", self.count, 0, self.count * joined)
            elif isinstance(line, Table):
                rows = self.axes["B"] * self.axes["T"] * self.axes["D"]
                yield Taken("tables", 1, 0, self.on.work["rearrange"].at(rows, "forward"))
                if self.run == "train":
                    whole = size(self.axes, letters(line.spec))
                    yield Taken("gradients of tables", 1, 0, self.work("table", whole))

    def _matmul(self, line: Matmul) -> float:
        if line.weight_axes() is not None:
            m, k, n, times = line.dims(self.axes)
            return self.on.product(m * times, k, n, self.run, self.cold)
        return self._pairs(line)

    def _pairs(self, line: Matmul) -> float:
        """Scores or values, each half of what both took; heads are laid out for the first of them."""
        b, t, s, n, h = (self.axes[letter] for letter in "BTSNH")
        group = "shared" if self.axes.get("G", 1) > 1 else "own"
        one = t == 1
        curve = self.on.work[f"{group}_{'token' if one else 'heads'}"]
        seconds = curve.forward if self.run == "forward" else curve.train
        pairs = [swept if one else swept * swept for swept in curve.sizes]
        each = [taken / number for taken, number in zip(seconds, pairs, strict=True)]
        both = b * n * t * s * h / HEAD * between(curve.sizes, each, s if one else t)
        laid = 0.0
        if "S" in line.einsum.out:
            wide = (b * t * n * h, b * t * n * h, b * t * self.axes["K"] * h, b * t * self.axes["K"] * h)
            laid = sum(self.work("rearrange", elements) for elements in wide)
        return float(both / 2 + laid)

    def _pointwise(self, line: Pointwise) -> float:
        leaf, elements = line.path.rpartition(".")[2], line.elements(self.axes)
        if "S" in letters(line.spec):
            return self.work("softmax", elements)
        if leaf.endswith("rotary"):
            return self.work("rotary", elements)
        if leaf.endswith("norm"):
            return self.work("layer_norm" if line.bias else "rms_norm", elements)
        kinds = self.acts if leaf == "act" else ("add",)
        return sum(self.work(kind, elements) for kind in kinds)


def taken(
    ledger: Ledger, work: Workload, run: Pass, on: Calibration, activation: str = "gelu", width: int = 4
) -> list[Taken]:
    """Seconds of a pass of the reference model, by name. Raises ConfigError for a line that was not swept.

    `width`: bytes of a weight's element.
    """
    at = work.axes()
    weights = sum(ledger.parameters().values())
    cold = width * weights > on.cache
    found: dict[str, Taken] = {}
    for group in ledger.groups:
        _check(group)
        for one in _Priced(group, at, run, cold, on, activation).taken():
            known = found.get(one.name, Taken(one.name, 0, 0, 0.0))
            found[one.name] = Taken(
                one.name, known.times + one.times, known.flops + one.flops, known.seconds + one.seconds
            )
        if BLOCK in on.work and group.numbers:
            known = found.get("calls", Taken("calls", 0, 0, 0.0))
            each = on.work[BLOCK].at(1, run)
            found["calls"] = Taken("calls", known.times + group.count, 0, known.seconds + group.count * each)
    return list(found.values())


def _check(group: Group) -> None:
    """Raises ConfigError for lines that are no decoder's of attention and dense networks."""
    for line in group.lines:
        every: Any = {*line.einsum.every} if isinstance(line, Matmul) else set()
        odd = isinstance(line, State) and "S" not in letters(line.spec)
        pairs = isinstance(line, Matmul) and line.weight_axes() is None and not {"N", "K"} & every
        if odd or pairs or "I" in every or "J" in every or (isinstance(line, Matmul) and line.bank):
            raise ConfigError(
                f"{paths.short(line.path)} was not swept", "decoders of attention and dense networks have a prediction"
            )
