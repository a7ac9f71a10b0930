"""The combinations of a sweep: every context, batch and value of a field, and fields that vary together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from operator import index
from typing import Any

from tfacct.base.errors import UsageError
from tfacct.base.ranges import Values, limited
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, check_size


@record
class Grid:
    """The values of every knob. `contexts` None: each model's own longest. `zipped` fields vary together, as many
    values of each. `ranks`: numbers of ranks that divide the model, by the axis of their mesh; `sp`: those of `tp`
    divide the stream's tokens too."""

    contexts: Collection[int] | None = None
    batches: Collection[int] = (1,)
    fields: Mapping[str, Sequence[Any]] | None = None
    zipped: Mapping[str, Sequence[Any]] | None = None
    ranks: Mapping[str, Collection[int]] | None = None
    sp: bool = False

    @property
    def knobs(self) -> dict[str, Sequence[Any]]:
        """The values of every field, and of every axis of a mesh."""
        return {**self.alone, **(self.zipped or {})}

    @property
    def alone(self) -> dict[str, Sequence[Any]]:
        """Those that vary by themselves."""
        return {**(self.fields or {}), **{axis: list(sizes) for axis, sizes in (self.ranks or {}).items()}}

    def size(self, models: int) -> int:
        """Number of combinations."""
        fields = prod(len(values) for values in self.alone.values())
        together = max(map(len, (self.zipped or {}).values()), default=1)
        return models * fields * together * (1 if self.contexts is None else len(self.contexts)) * len(self.batches)

    def settings(self) -> Iterator[dict[str, Any]]:
        """Every combination of fields."""
        rows = list(zip(*(self.zipped or {}).values(), strict=True)) or [()]
        for values in product(*self.alone.values(), rows):
            yield dict(zip(self.knobs, (*values[:-1], *values[-1]), strict=True))

    @property
    def varied(self) -> list[str]:
        """The knobs that have more than one value."""
        knobs = {name: len(values) for name, values in self.knobs.items()}
        knobs |= {"ctx": len(self.contexts or ()), "batch": len(self.batches)}
        return [name for name, values in knobs.items() if values > 1]

    @property
    def corner(self) -> tuple[int | None, int]:
        """The largest of the contexts and of the batches: the workload that the JSON names beside the lines."""
        return (max(self.contexts) if self.contexts else None), max(self.batches)


def checked(grid: Grid) -> Grid:
    """The grid with whole numbers for contexts and batches, at least one of each. Raises UsageError."""
    contexts = None if grid.contexts is None else _sizes(option("ctx"), grid.contexts)
    grid = replace(grid, contexts=contexts, batches=_sizes(option("batch"), grid.batches))
    knobs = {option("ctx"): grid.contexts, option("batch"): grid.batches, **grid.knobs}
    for knob, values in knobs.items():
        if values is not None and not len(values):
            raise UsageError(f"{knob} has no values")
    for name in grid.knobs:
        if name in ("model", "ctx", "batch"):
            raise UsageError(f"{name} is a knob of the sweep: a field of that name cannot be swept")
        if name in (grid.ranks or {}) and name in {**(grid.fields or {}), **(grid.zipped or {})}:
            raise UsageError(f"{name} is a number of ranks: a field of that name cannot be swept beside it")
    _check_zipped(grid)
    if grid.sp and max((grid.ranks or {}).get("tp", ()), default=1) == 1:
        raise UsageError(f"{option('sp', True)} divides what {option('tp')} does: it needs {option('tp', '1,2,4')}")
    ranks = {axis: _sizes(option(axis), sizes) for axis, sizes in (grid.ranks or {}).items()}
    return replace(grid, ranks=ranks or None)


def _check_zipped(grid: Grid) -> None:
    """Refuse fields that vary together and have not as many values, or vary on their own too."""
    zipped = grid.zipped or {}
    if twice := [name for name in zipped if name in (grid.fields or {})]:
        raise UsageError(f"{twice[0]} varies with others and on its own: give it once")
    if len(set(map(len, zipped.values()))) > 1:
        counts = ", ".join(f"{name} {len(values):,}" for name, values in zipped.items())
        raise UsageError(f"{option('zip')} needs the same number of values for each field, not {counts}")


def _sizes(what: str, values: Collection[int]) -> Collection[int]:
    """Whole numbers of at least 1; what was read from the command line is checked already."""
    if isinstance(values, Values):
        return values
    try:
        limited(what, values)
        sizes = [index(value) for value in values]
    except TypeError:
        raise UsageError(f"{what} must be a collection of whole numbers, not {values!r}") from None
    for size in sizes:
        check_size(what, size)
    return sizes


def at(request: Request, context: int | None, batch: int) -> Request:
    """The request at a context and a batch."""
    return replace(request, ctx=context, batch=batch)
