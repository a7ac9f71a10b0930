"""Calibrations: results of a sweep of a machine (`devices --calibrate`), as a table in a device's file.

The sweep times matmuls, attention, copies and other operations at a few sizes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tfacct.base.errors import ConfigError, cut
from tfacct.base.pydantic_messages import describe_error
from tfacct.base.record import record
from tfacct.base.spelling import spelled

Pass = Literal["forward", "train"]
"""A forward pass, or forward and backward."""
DOUBTFUL = 0.25
"""Median error of its checks above which a sweep is reported as doubtful."""
ACTIVATIONS: Mapping[str, str] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}
"""Kinds of operations by names of activations; others are timed as gelu."""
WORK = (
    *("layer_norm", "rms_norm", "add", "mean", "rearrange", "join", "rotary", "softmax"),
    *dict.fromkeys(ACTIVATIONS.values()),
    *("own_heads", "shared_heads", "own_token", "shared_token"),
)
"""Kinds of operations that a sweep times, forward and backward."""
BLOCK = "block"
"""Kind for the overhead of a layer: module calls, views, masks."""
BACKWARD = ("table", "sum")
"""Kinds in the backward pass only: gradient of an embedding, and the sum of two gradients for a tied head."""
FACTS = ("machine", "dtype", "threads", "torch", "clock", "read", "cache")
"""Fields of a calibration with one value."""


@record
class Curve:
    """Seconds by ascending size: of a forward pass, and of forward and backward."""

    sizes: tuple[int, ...]
    forward: tuple[float, ...]
    train: tuple[float, ...]

    def at(self, wanted: float, run: Pass) -> float:
        """Seconds at a size: log-log interpolation, proportional above the last size, constant below the first."""
        seconds = self.forward if run == "forward" else self.train
        if wanted >= self.sizes[-1]:
            return seconds[-1] * wanted / self.sizes[-1]
        return between(self.sizes, seconds, wanted)


def between(sizes: Sequence[float], values: Sequence[float], wanted: float) -> float:
    """Value at a size by log-log interpolation; outside the range, the nearest value."""
    if wanted <= sizes[0] or len(sizes) == 1:
        return values[0]
    if wanted >= sizes[-1]:
        return values[-1]
    after = bisect_left(sizes, wanted)
    share = log(wanted / sizes[after - 1]) / log(sizes[after] / sizes[after - 1])
    return exp(log(values[after - 1]) * (1 - share) + log(values[after]) * share)


@record
class Swept:
    """Times of matmuls with a weight of `inputs` × `outputs`, by rows. `cold`: the weight was in no cache."""

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
    """Checks of a calibration on the same machine: ratios of measured to predicted seconds of whole passes, by name."""

    ratios: Mapping[str, float]

    @property
    def error(self) -> float:
        """Median error of a prediction."""
        off = sorted(abs(1 / ratio - 1) for ratio in self.ratios.values())
        middle = len(off) // 2
        return off[middle] if len(off) % 2 else (off[middle - 1] + off[middle]) / 2

    @property
    def doubtful(self) -> bool:
        """True if the sweep does not predict whole passes, for example because the machine was busy."""
        return self.error > DOUBTFUL

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest ratio."""
        return min(self.ratios.values()), max(self.ratios.values())


@record
class Calibration:
    """Results of a sweep: machine, torch, threads, clock and date, and seconds by kind of operation.

    `cache`: bytes of weights up to which they are assumed to stay in a cache between steps.
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

    @property
    def threads_words(self) -> str:
        """Text of the number of threads: `one thread`, `4 threads`."""
        return "one thread" if self.threads == 1 else f"{self.threads:,} threads"

    def product(self, m: int, k: int, n: int, run: Pass, cold: bool) -> float:
        """Seconds of an m × k by k × n matmul with a weight."""
        alike = sorted((one for one in self.products if one.cold is cold), key=lambda one: one.elements)
        each = [one.rows.at(m, run) / one.elements for one in alike]
        return float(k * n * between([one.elements for one in alike], each, k * n))


Seconds = Annotated[float, Field(gt=0, lt=1e6, allow_inf_nan=False)]
Size = Annotated[int, Field(ge=1, le=10**12)]
Text = Annotated[str, Field(max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)


class _Curve(_Strict):
    """Seconds by size."""

    sizes: Annotated[tuple[Size, ...], Field(min_length=1, max_length=64)]
    forward: tuple[Seconds, ...]
    train: tuple[Seconds, ...]

    @model_validator(mode="after")
    def _same_lengths(self) -> _Curve:
        if not len(self.sizes) == len(self.forward) == len(self.train):
            raise ValueError("sizes, forward and train must have the same length")
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError("sizes must be in ascending order")
        return self

    def curve(self) -> Curve:
        return Curve(self.sizes, self.forward, self.train)


class _Product(_Curve):
    """Seconds of a matmul by rows."""

    inputs: Size
    outputs: Size
    cold: bool

    def swept(self) -> Swept:
        return Swept(self.inputs, self.outputs, self.cold, self.curve())


class _Calibration(_Strict):
    """The whole table."""

    machine: Text
    dtype: Literal["fp32", "bf16", "fp16"]
    threads: Size
    torch: Text
    clock: Literal["process", "wall", "events"]
    read: Text
    cache: Size
    products: Annotated[tuple[_Product, ...], Field(min_length=2, max_length=200)]
    work: Mapping[str, _Curve]
    checks: Annotated[Mapping[str, Seconds], Field(min_length=1, max_length=200)]

    @model_validator(mode="after")
    def _completed(self) -> _Calibration:
        if missing := [kind for kind in (*WORK, *BACKWARD, BLOCK) if kind not in self.work]:
            raise ValueError(f"work lacks {missing[0]}")
        if {one.cold for one in self.products} != {True, False}:
            raise ValueError("products needs cold and warm times")
        return self


def read(path: Path, table: object) -> Calibration:
    """Calibration from a device's file. Raises ConfigError with the field."""
    try:
        found = _Calibration.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{path}: [calibration] {cut(where)}{_problem(first)}",
            spelled("`tfacct devices --calibrate` writes such a file", "calibrate() writes such a file"),
        ) from None
    return Calibration(
        **{name: getattr(found, name) for name in FACTS},
        products=tuple(one.swept() for one in found.products),
        work={kind: one.curve() for kind, one in found.work.items()},
        checks=Checks(dict(found.checks)),
    )


def _problem(error: Mapping[str, Any]) -> str:
    """Error of pydantic, to follow the name of the field."""
    context = error.get("ctx", {})
    if error["type"] == "value_error":
        return f"{': ' if error['loc'] else ''}{cut(str(context['error']), 200)}"
    if error["type"] == "missing":
        return " is missing"
    if error["type"] == "extra_forbidden":
        return " is not a calibration field"
    return f" {describe_error(error)}"


def written(name: str, memory: int, bandwidth: float, peak: float, on: Calibration, *, machine: bool) -> str:
    """Text of a device's file. `machine`: the memory is the machine's, not torch's total of a card.

    Name, machine and torch must be plain text.
    """
    total = [f"board_bytes = {memory:_}", 'board_from = "machine"'] if machine else [f"torch_bytes = {memory:_}"]
    return "\n".join(_lines(name, total, bandwidth, peak, on)) + "\n"


def _lines(name: str, total: Sequence[str], bandwidth: float, peak: float, on: Calibration) -> Iterator[str]:
    yield f"name = {_text(name)}"
    yield from ("", "[memory]", *total, f"bandwidth = {bandwidth:.4g}  # bytes per second, of a copy")
    yield from ("", "[peak]  # FLOPs per second, of the fastest product", f"{on.dtype} = {peak:.4g}")
    yield from ("", "[source]", f"read = {_text(on.read)}", 'kind = "measured"')
    yield from ("", "[calibration]  # seconds")
    for field in FACTS:
        value = getattr(on, field)
        yield f"{field} = {_text(value) if isinstance(value, str) else value}"
    yield from ("", "[calibration.checks]  # measured over predicted seconds of whole passes")
    yield from (f"{_text(what)} = {ratio:.4g}" for what, ratio in on.checks.ratios.items())
    for kind, curve in on.work.items():
        yield from ("", f"[calibration.work.{kind}]", *_curve(curve))
    for one in on.products:
        cold = "true" if one.cold else "false"
        yield from ("", "[[calibration.products]]", f"inputs = {one.inputs}", f"outputs = {one.outputs}")
        yield from (f"cold = {cold}", *_curve(one.rows))


def _curve(curve: Curve) -> Iterator[str]:
    yield f"sizes = {list(curve.sizes)}"
    yield f"forward = {_seconds(curve.forward)}"
    yield f"train = {_seconds(curve.train)}"


def _seconds(values: Sequence[float]) -> str:
    return f"[{', '.join(f'{value:.4g}' for value in values)}]"


def _text(value: Any) -> str:
    plain = "".join(char if char.isprintable() and char not in '"\\' else " " for char in str(value))
    return f'"{plain}"'
