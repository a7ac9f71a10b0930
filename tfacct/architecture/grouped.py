"""Groups of ledger lines from the parts of layers, embeddings and heads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tfacct.architecture.axis_names import Names
from tfacct.architecture.blocks import Stack
from tfacct.architecture.parts import Part
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size, same
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import LONGEST, Line, Pointwise, Unused
from tfacct.ledger.workload import PADDED


def group(
    parts: Iterable[tuple[str, Part]], names: Names, count: Size = 1, numbers: Sequence[int] = (), kind: str = ""
) -> Group:
    """Group with the lines of these parts, given with their paths. Raises ValueError if an axis has two sizes."""
    axes: dict[str, Size] = {}
    lines: list[Line] = []
    for at, part in parts:
        for axis, value in part.axes().items():
            if not same(axes.setdefault(axis, value), value):
                raise ValueError(f"{at}: axis {axis} is {value} here and {axes[axis]} in the same group")
        lines += part.lines(at)
    return Group(tuple(lines), axes, count, numbers, kind, names)


def grouped(
    stacks: Sequence[Stack], numbers: Sequence[Sequence[int]], kinds: Sequence[str], names: Sequence[Names]
) -> Iterator[Group]:
    """A group for every stack, with layer numbers, kind and axis names."""
    for stack, layer_numbers, kind, renamed in zip(stacks, numbers, kinds, names, strict=True):
        parts = ((paths.in_every(paths.BLOCKS, name), part) for name, part in stack.block.parts())
        yield replace(group(parts, renamed, stack.count, layer_numbers, kind), once=stack.once, shared=stack.shared)


def longest_window(stacks: Sequence[Stack]) -> Size | None:
    """Number of tokens that inputs of these layers are padded to a multiple of; None without padding."""
    found = (sublayer.part.padded_to for stack in stacks for sublayer in stack.block.sublayers)
    return next((size for size in found if size is not None), None)


def padded_to_windows(unpadded: Group, longest: Size | None) -> Group:
    """Group with tokens padded to whole windows; unchanged if `longest` is None."""
    if longest is None or not unpadded.lines:
        return unpadded
    lines = tuple(_renamed(line, {"T": PADDED}) for line in unpadded.lines)
    return replace(unpadded, lines=lines, axes={**unpadded.axes, LONGEST: longest})


def of_source(encoder: Group) -> Group:
    """Group of an encoder before a decoder: source axes I and J replace T and S."""
    return replace(encoder, lines=tuple(_moved(_renamed(line, {"T": "I", "S": "J"})) for line in encoder.lines))


def _renamed(line: Any, tokens: Names) -> Any:
    return Unused(_renamed(line.of, tokens)) if isinstance(line, Unused) else line.renamed(tokens)


def _moved(line: Any) -> Any:
    """Line with its path in the encoder."""
    if isinstance(line, Unused):
        return Unused(_moved(line.of))
    line = replace(line, path=paths.in_encoder(line.path))
    if isinstance(line, Pointwise) and line.module is not None:
        return replace(line, module=paths.in_encoder(line.module))
    return line
