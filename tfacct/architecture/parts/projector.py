"""Projector of a multimodal model: from results of an encoder to tokens of the language model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple, TypeAlias

from tfacct.architecture.parts.merger import Merger
from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import FRONT, MERGE, Line, Matmul, Pointwise, PointwiseKind, Table, Unused
from tfacct.ledger.workload import MERGED, PATCHES

_DIGITS = str.maketrans("0123456789", "abcdefghij")
"""Digits as letters, for names of axes."""


class Linear(NamedTuple):
    """A linear layer with its name in the class."""

    name: str
    inputs: Size
    outputs: Size
    bias: bool = True


class Scaling(NamedTuple):
    """A norm with its name in the class: RMSNorm, or LayerNorm with a `bias`."""

    name: str
    width: Size
    bias: bool = False


class Learned(NamedTuple):
    """A learned tensor that is not a weight of a matmul or norm."""

    name: str
    shape: tuple[Size, ...]


class Activated(NamedTuple):
    """An activation of rows of this width; `gated`: of one half of each row, multiplied by the other half."""

    name: str
    width: Size
    gated: bool = False


class Dropped(NamedTuple):
    """Drops the first rows: a class token or, in some classes, the first row of any kind."""

    rows: int = 1


class Joined(NamedTuple):
    """Joins neighbouring rows: concatenated or, with `averaged`, their mean of this width."""

    rows: int
    averaged: Size | None = None


Step: TypeAlias = Linear | Scaling | Learned | Activated | Dropped | Joined


@record
class NamedTensors(Part):
    """Linear layers, norms and learned tensors with their names in the class; only parameters are counted."""

    steps: tuple[Linear | Scaling | Learned, ...]

    def axes(self) -> dict[str, Size]:
        """Sizes of each step, with separate axes."""
        return _axes(self.steps)

    def lines(self, at: str) -> Iterator[Line]:
        """Lines of each step, marked as unused."""
        lines = _lines(at, self.steps, "T")
        for line in lines:
            yield Unused(line) if isinstance(line, Matmul | Pointwise) else line


@record
class Projector(Part):
    """Steps of a projector in execution order. The input is the concatenated results of `layers` layers of the encoder
    or, if `merged`, the output of the encoder's merger."""

    steps: tuple[Step, ...]
    merged: bool = False
    layers: int = 1

    name: ClassVar[str] = "projector"
    legend: ClassVar[dict[str, str]] = {FRONT: "rows that the projector drops", MERGE: Merger.legend[MERGE]}

    def axes(self) -> dict[str, Size]:
        """Sizes of each step, with separate axes, and of rows that are dropped or merged."""
        found = _axes(self.steps)
        for step in self.steps:
            if isinstance(step, Dropped):
                found[FRONT] = step.rows
            elif isinstance(step, Joined):
                found[MERGE] = step.rows
        return found

    def lines(self, at: str) -> Iterator[Line]:
        return _lines(at, self.steps, MERGED if self.merged else "T")


def _sizes(step: Step) -> tuple[Size, ...]:
    match step:
        case Linear():
            return step.inputs, step.outputs
        case Scaling():
            return (step.width,)
        case Activated():
            return (step.width // 2 if step.gated else step.width,)
        case Learned():
            return step.shape
        case Joined(averaged=width) if width is not None:
            return (width,)
    return ()


def _with_axis_names(steps: tuple[Step, ...]) -> Iterator[tuple[list[str], Step]]:
    """Steps, each with names of axes for its sizes."""
    for number, step in enumerate(steps):
        axis = f"P{str(number).translate(_DIGITS)}"
        yield [f"{axis}{mark}" for mark in "xyz"[: len(_sizes(step))]], step


def _axes(steps: tuple[Step, ...]) -> dict[str, Size]:
    found: dict[str, Size] = {}
    for axis_names, step in _with_axis_names(steps):
        found |= zip(axis_names, _sizes(step), strict=True)
    return found


def _lines(at: str, steps: tuple[Step, ...], rows: str) -> Iterator[Line]:
    """Lines of steps, where `rows` is the axis of the input rows."""
    for axis_names, step in _with_axis_names(steps):
        match step:
            case Linear():
                inputs, outputs = axis_names
                spec = f"B {rows} {inputs}, {inputs} {outputs} -> B {rows} {outputs}"
                yield Matmul(f"{at}.{step.name}", spec, bias=step.bias)
            case Scaling():
                (width,) = axis_names
                shift = width if step.bias else ""
                kind: PointwiseKind = "norm_layer" if shift else "norm_rms"
                yield Pointwise(f"{at}.{step.name}", f"B {rows} {width}", weight=width, bias=shift, kind=kind)
            case Learned():
                yield Table(f"{at}.{step.name}", " ".join(axis_names), embedding=False)
            case Activated():
                yield Pointwise(f"{at}.{step.name}", f"B {rows} {axis_names[0]}", kind="activation")
            case Dropped():
                rows = PATCHES
            case Joined():
                if axis_names:
                    yield Pointwise(f"{at}.average", f"B {MERGED} {MERGE} {axis_names[0]}", kind="sum")
                rows = MERGED
