"""A ledger as data for other programs, with derived sizes as sums of products of symbols.

The code that counts ints, arrays and symbols is evaluated with text here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfacct.algebra.symbols import axis_meanings, layer_axes, with_sizes
from tfacct.architecture.parts import LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.base.ranges import spans
from tfacct.base.record import record
from tfacct.ledger.einsum import AXIS, Size, SpecError, evaluated
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import Line, Matmul, Pointwise, State, Table, Unused


class SizeText(str):
    """A size as text, with symbols, numbers, + and *.

    >>> K, G, H = map(SizeText, "KGH")
    >>> 2 * K * G * H + K
    '2*K*G*H+K'

    There are no brackets: raises SpecError for the product of a sum.
    """

    __slots__ = ()

    def __add__(self, other: object) -> SizeText:
        return self if other == 0 else SizeText(f"{self}+{other}")

    def __radd__(self, other: object) -> SizeText:
        return self if other == 0 else SizeText(f"{other}+{self}")

    def __mul__(self, other: object) -> SizeText:
        return self if other == 1 else SizeText(f"{_factor(self)}*{_factor(other)}")

    def __rmul__(self, other: object) -> SizeText:
        return self if other == 1 else SizeText(f"{_factor(other)}*{_factor(self)}")


def _factor(size: object) -> object:
    if "+" in str(size):
        raise SpecError(f"{size} is a sum: it would need brackets as a factor")
    return size


def value(size: str | int, sizes: Mapping[str, int]) -> int:
    """Number of a size in text.

    >>> value("2*K*G+K", {"K": 3, "G": 5})
    33
    """
    return size if isinstance(size, int) else int(evaluated(size.replace("*", "·"), sizes))


@record
class ExportedLedger:
    """A model's ledger as plain data: `sizes` by axis, `legend` of all axes, and `ways`, the alternatives of a step.

    Each alternative has a name, None if there is only one, and groups.
    """

    sizes: dict[str, int]
    legend: dict[str, str]
    ways: list[dict[str, Any]]


def export_ledger(shape: Transformer) -> ExportedLedger:
    """Return the ledger of a model with its sizes in symbols. Raises SpecError."""
    sizes, fixed = _sizes(shape)
    counts = dict(zip(layer_axes(shape), (stack.count for stack in shape.every_stack), strict=True))
    open_ = with_sizes(shape, SizeText, fixed)
    every = sizes | counts
    ways: list[dict[str, Any]] = []
    for real, symbolic in zip(shape.ways(), open_.ways(), strict=True):
        groups = zip(real.ledger().groups, symbolic.ledger().groups, strict=True)
        ways.append({"form": _form(real, shape), "groups": [_group(*both, every) for both in groups]})
    used = {axis for way in ways for group in way["groups"] for axis in _axis_names(group)}
    return ExportedLedger(
        sizes={axis: size for axis, size in every.items() if axis in used},
        legend={axis: meaning for axis, meaning in axis_meanings(shape).items() if axis in used},
        ways=ways,
    )


def _sizes(shape: Transformer) -> tuple[dict[str, Any], frozenset[str]]:
    """Sizes by axis, and the axes with several sizes, which stay numbers."""
    found: dict[str, Any] = {}
    several = set()
    for place, names in shape.named_places():
        for part in place.parts:
            for field, axis in part.sizes().items():
                name, size = names.get(axis, axis), getattr(part, field)
                if found.setdefault(name, size) != size:
                    several.add(name)
    return {name: size for name, size in found.items() if name not in several}, frozenset(several)


def _form(way: Transformer, shape: Transformer) -> str | None:
    if way is shape:
        return None
    return next(part.mla_mode for part in way.parts() if isinstance(part, LatentAttention))


def _group(real: Group, symbolic: Group, sizes: Mapping[str, int]) -> dict[str, Any]:
    for axis, size in symbolic.axes.items():
        if value(size, sizes) != real.axes[axis]:
            raise SpecError(f"{axis} is {real.axes[axis]}, and {size} comes to {value(size, sizes)}")
    return {
        "kind": real.kind,
        "count": _plain(symbolic.count),
        "blocks": spans(real.numbers),
        "once": real.once,
        "shared": list(real.shared),
        "axes": {axis: _plain(size) for axis, size in symbolic.axes.items()},
        "names": dict(real.names),
        "lines": [line_facts(line) for line in real.lines],
    }


def _plain(size: Size) -> str | int:
    return str(size) if isinstance(size, str) else int(size)


def _axis_names(group: Mapping[str, Any]) -> Iterator[str]:
    """Axes of a group's sizes and lines, with the model's names."""
    for size in (group["count"], *group["axes"].values()):
        yield from AXIS.findall(str(size))
    for line in group["lines"]:
        for axis in AXIS.findall(line["spec"]):
            yield group["names"].get(axis, axis)


def line_facts(line: Line) -> dict[str, Any]:
    """Line as plain data, without default values."""
    idle = isinstance(line, Unused)
    facts: dict[str, Any]
    match line.of if isinstance(line, Unused) else line:
        case Matmul() as one:
            mask = None if one.mask == "full" else one.mask
            facts = {
                "line": "matmul",
                "weight": one.weight,
                "bias": one.bias,
                "mask": mask,
                "expert_axis": one.expert_axis,
            }
        case Table() as one:
            facts = {"line": "embedding", "embedding": one.embedding}
        case State() as one:
            facts = {"line": "state", "bits": one.bits}
        case Pointwise() as one:
            stored = {"weight": one.weight, "bias": one.bias, "module": one.module}
            facts = {"line": "pointwise", **stored, "sums": one.sums}
    given = {name: fact for name, fact in facts.items() if fact not in (None, "", False)}
    kind = {"line": given.pop("line")}
    return {**kind, "path": line.path, "spec": one.spec, **given, **({"unused": True} if idle else {})}
