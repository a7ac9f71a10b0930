"""The projector of a multimodal model: it turns the rows that an encoder gives into rows of the language model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table

_DIGITS = str.maketrans("0123456789", "abcdefghij")
"""Letters have no digits."""


class Linear(NamedTuple):
    """A product by its name in the class."""

    name: str
    inputs: Size
    outputs: Size
    bias: bool = True


class Scaling(NamedTuple):
    """A norm by its name in the class: RMSNorm, or LayerNorm with a `bias`."""

    name: str
    width: Size
    bias: bool = False


class Learned(NamedTuple):
    """A learned tensor that is no weight of a product or norm."""

    name: str
    shape: tuple[Size, ...]


@record
class NamedTensors(Part):
    """Products, norms and learned tensors by their names in the class, of which only the parameters are counted."""

    steps: tuple[Linear | Scaling | Learned, ...]

    def axes(self) -> dict[str, Size]:
        """The sizes of each step, by letters of its own."""
        found: dict[str, Size] = {}
        for letters, step in self._lettered():
            found |= zip(letters, _sizes(step), strict=True)
        return found

    def lines(self, at: str) -> tuple[Line, ...]:
        """A line for each step."""
        return tuple(_line(f"{at}.{step.name}", step, letters) for letters, step in self._lettered())

    def _lettered(self) -> Iterator[tuple[list[str], Linear | Scaling | Learned]]:
        for number, step in enumerate(self.steps):
            own = f"P{str(number).translate(_DIGITS)}"
            yield [f"{own}{mark}" for mark in "xyz"[: len(_sizes(step))]], step


@record
class Projector(NamedTensors):
    """The steps of a projector, in the order in which the class declares them. How many rows each step reads differs
    from class to class, and often from image to image."""

    name: ClassVar[str] = "projector"


def _sizes(step: Linear | Scaling | Learned) -> tuple[Size, ...]:
    match step:
        case Linear():
            return step.inputs, step.outputs
        case Scaling():
            return (step.width,)
        case Learned():
            return step.shape


def _line(at: str, step: Linear | Scaling | Learned, letters: list[str]) -> Line:
    match step:
        case Linear():
            inputs, outputs = letters
            return Matmul(at, f"B T {inputs}, {inputs} {outputs} -> B T {outputs}", bias=step.bias)
        case Scaling():
            (width,) = letters
            return Pointwise(at, f"B T {width}", weight=width, bias=width if step.bias else "")
        case Learned():
            return Table(at, " ".join(letters), embedding=False)
