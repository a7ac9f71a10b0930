"""The [calibration] table of a device's file: what a sweep found there, read with pydantic and written as TOML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tfacct.base.complaints import must
from tfacct.base.errors import ConfigError, cut
from tfacct.base.spelling import spelled
from tfacct.loading.calibrated import BACKWARD, BLOCK, WORK, Calibration, Checks, Curve, Swept

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
    def _alike(self) -> _Curve:
        if not len(self.sizes) == len(self.forward) == len(self.train):
            raise ValueError("sizes, forward and train must be equally many")
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError("sizes must rise")
        return self

    def curve(self) -> Curve:
        return Curve(self.sizes, self.forward, self.train)


class _Product(_Curve):
    """Seconds of a product by rows."""

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
    def _whole(self) -> _Calibration:
        if missing := [kind for kind in (*WORK, *BACKWARD, BLOCK) if kind not in self.work]:
            raise ValueError(f"work has no {missing[0]}")
        if {one.cold for one in self.products} != {True, False}:
            raise ValueError("products must be cold and not")
        return self


def read(path: Path, table: object) -> Calibration:
    """Calibration of a device's file. Raises ConfigError, which names the field."""
    try:
        found = _Calibration.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{path}: [calibration] {cut(where)}{_said(first)}",
            spelled("`tfacct measure --calibrate` writes such a file", "measure --calibrate writes such a file"),
        ) from None
    return Calibration(
        found.machine,
        found.dtype,
        found.threads,
        found.torch,
        found.clock,
        found.read,
        found.cache,
        tuple(one.swept() for one in found.products),
        {kind: one.curve() for kind, one in found.work.items()},
        Checks(dict(found.checks)),
    )


def _said(complaint: Mapping[str, Any]) -> str:
    """A complaint of pydantic, as it goes on behind the name of the field."""
    found = complaint.get("ctx", {})
    if complaint["type"] == "value_error":
        return f"{': ' if complaint['loc'] else ''}{cut(str(found['error']), 200)}"
    if complaint["type"] == "missing":
        return " is missing"
    if complaint["type"] == "extra_forbidden":
        return " is not a field of it"
    return f" {must(complaint)}"


def written(name: str, memory: int, bandwidth: float, peak: float, on: Calibration, *, machine: bool = True) -> str:
    """A device's file; `machine`: its memory is the machine's, not what torch reports of a card. Its name, machine and
    torch must be plain text."""
    total = [f"board_bytes = {memory:_}", 'board_from = "machine"'] if machine else [f"torch_bytes = {memory:_}"]
    return "\n".join(_lines(name, total, bandwidth, peak, on)) + "\n"


def _lines(name: str, total: Sequence[str], bandwidth: float, peak: float, on: Calibration) -> Iterator[str]:
    yield f"name = {_text(name)}"
    yield from ("", "[memory]", *total, f"bandwidth = {bandwidth:.4g}  # bytes per second, of a copy")
    yield from ("", "[peak]  # FLOPs per second, of the fastest product", f"{on.dtype} = {peak:.4g}")
    yield from ("", "[source]", f"read = {_text(on.read)}", 'kind = "measured"')
    yield from ("", "[calibration]  # seconds")
    for field in ("machine", "dtype", "threads", "torch", "clock", "read", "cache"):
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
