"""What one rank stores: each tensor's rows and columns there, and which tensors are gathered together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import NamedTuple

from tfacct.accounts.sharding.mesh import Mesh
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, rounded_up
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import Parameter


class Shard(NamedTuple):
    """A stored tensor on one rank: `rows` × `columns` of it, with `padded` rows where `fsdp` divides them."""

    path: str
    rows: int
    columns: int
    padded: int

    @property
    def elements(self) -> int:
        """Number of elements that the fullest rank stores, padding included."""
        return self.padded * self.columns


def shard(parameter: Parameter, axes: Axes, mesh: Mesh) -> Shard:
    """A tensor on one rank. Its rows are the outputs of a product, the rows of a table, and all of a vector."""
    if parameter.embedding:
        along = parameter.axes[:1]
    elif parameter.inputs:
        along = tuple(axis for axis in parameter.axes if axis not in parameter.inputs)
    else:
        along = parameter.axes
    letter = mesh.divided(parameter.axes)
    local = {axis: axes[axis] // mesh.tp if axis == letter else axes[axis] for axis in parameter.axes}
    rows = prod(local[axis] for axis in along)
    columns = prod(size_ for axis, size_ in local.items() if axis not in along)
    return Shard(parameter.path, rows, columns, rounded_up(rows, mesh.fsdp))


def gathered(ledger: Ledger, mesh: Mesh) -> Iterator[tuple[str, int, list[Shard]]]:
    """Weights that are gathered together: those of a block, for each kind of blocks with their number, then all that
    is in no block."""
    root: dict[str, Shard] = {}
    for group in ledger.groups:
        own = {one.path: one for one in _shards(group, mesh)}
        if any(map(paths.repeated, own)):
            yield next(iter(own)).split("*")[0] + "*", group.count, list(own.values())
        else:
            root = {**own, **root}
    if root:
        yield "", 1, list(root.values())


def stored_elements(ledger: Ledger, mesh: Mesh) -> int:
    """Number of elements that the fullest rank stores, padding included."""
    return sum(count * one.elements for _, count, shards in gathered(ledger, mesh) for one in shards)


def _shards(group: Group, mesh: Mesh) -> Iterable[Shard]:
    return (shard(own, group.axes, mesh) for line in group.lines for own in line.parameters())
