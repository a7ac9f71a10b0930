"""Shapes of stored tensors on one rank, and the units of tensors that FSDP gathers together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple

from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, rounded_up
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import EXPERTS, NO_MATRIX, RATES, Line, Matmul, Parameter
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.parallel.mesh import Mesh, is_joint_qk_norm, joint_qk_norm

RANK_EXPERTS = "Er"
"""Experts of one rank."""
RANK_HEADS = {"K": "Kr", "N": "Nr"}
"""Heads of one rank if only their weights are sharded."""
COLUMNS = frozenset(("Kc", "Ns"))
"""Axes within a row of weights outside matmuls: taps of a convolution, states of a channel."""


class Shard(NamedTuple):
    """A stored tensor on one rank: `rows` × `columns`, and `padded` rows if `fsdp` shards them. `transposes`: a class
    may store its columns first. `trained`: a training step computes its gradient."""

    path: str
    rows: int
    columns: int
    padded: int
    transposes: bool = True
    trained: bool = True

    @property
    def elements(self) -> int:
        """Number of elements that the fullest rank stores, padding included."""
        return self.padded * self.columns


def shard(parameter: Parameter, axes: Axes, mesh: Mesh) -> Shard:
    """A tensor on one rank. Its rows are the outputs of a matmul, the rows of an embedding, the experts of stacked
    experts, or the elements of a vector."""
    return _padded(parameter, *_sides(parameter, axes, mesh), mesh)


def _padded(parameter: Parameter, rows: int, columns: int, mesh: Mesh) -> Shard:
    padded = rounded_up(rows, mesh.expert_shards if parameter.is_expert else mesh.weight_shards)
    learns = trained(parameter.path) and (parameter.table is None or parameter.table.trained)
    return Shard(parameter.path, rows, columns, padded, COLUMNS.isdisjoint(parameter.axes), learns)


def _sides(parameter: Parameter, axes: Axes, mesh: Mesh) -> tuple[int, int]:
    """Rows and columns of a tensor on one rank, before FSDP shards the rows."""
    if mesh.zero:  # engines cut the concatenation of all tensors, wherever their rows end
        along = parameter.axes
    elif parameter.table is not None or parameter.is_expert:
        along = parameter.axes[:1]
    elif parameter.inputs:
        along = tuple(axis for axis in parameter.axes if axis not in parameter.inputs)
    else:  # a router's rows are experts, and a gate has one
        along = tuple(axis for axis in parameter.axes if axis in NO_MATRIX)
        if parameter.axes[0] in RATES.values():  # position biases of compressed keys have one row per token
            along = parameter.axes[:1]
        along = along or tuple(axis for axis in parameter.axes if axis not in COLUMNS) or parameter.axes
    sharded = None if is_joint_qk_norm(parameter) else mesh.sharded_axis(parameter.axes, parameter.is_expert)
    local = {axis: mesh.shard_size(axis, axes[axis]) if axis == sharded else axes[axis] for axis in parameter.axes}
    if parameter.is_expert:
        local[parameter.axes[0]] //= mesh.ep
    rows = prod([local[axis] for axis in along])
    return rows, prod([size_ for axis, size_ in local.items() if axis not in along])


def is_routing_bias(path: str) -> bool:
    """True for the bias that corrects expert selection: it has no gradient."""
    return path.endswith(".routing.bias")


def trained(path: str) -> bool:
    """True for a weight with a gradient in a training step: not for weights that only select experts or keys."""
    return ".indexer." not in path and not is_routing_bias(path)


class Unit:
    """Weights that `ranks` ranks gather together: one layer, `times` times; its experts if `ep` shards them; or, if
    `what` is empty, everything outside the layers. `elements`: those that the fullest rank stores, padding included;
    `trained`: those of weights with gradients."""

    def __init__(self, what: str, times: int, ranks: int, shards: list[Shard]) -> None:
        self.what, self.times, self.ranks, self.shards = what, times, ranks, shards
        self.elements = sum(one.elements for one in shards)
        self.trained = sum(one.elements for one in shards if one.trained)

    @property
    def of_experts(self) -> bool:
        """True for the experts of a layer."""
        return bool(self.what) and not self.what.endswith("*")


def fsdp_units(ledger: Ledger, mesh: Mesh) -> list[Unit]:
    """The units of weights that are gathered together, for each kind of layers."""
    key = "gathered", mesh.tp, mesh.ep, mesh.weight_shards, mesh.expert_shards, mesh.zero > 0
    return ledger.once(key, lambda: list(_fsdp_units(ledger, mesh)))


def shards(group: Group, mesh: Mesh) -> Mapping[str, Shard]:
    """The weights of a group on one rank, by path."""
    sizes = mesh.tp, mesh.ep, mesh.zero > 0, *group.axes.items()

    def sides() -> list[tuple[Parameter, int, int]]:
        return [(one, *_sides(one, group.axes, mesh)) for one in group.cached_lines.parameters]

    def found() -> dict[str, Shard]:
        each = group.cached_lines.once((_sides, *sizes), sides)
        return {one.path: _padded(one, rows, columns, mesh) for one, rows, columns in each}

    return group.cached_lines.once((shards, mesh.weight_shards, mesh.expert_shards, *sizes), found)


def _fsdp_units(ledger: Ledger, mesh: Mesh) -> Iterator[Unit]:
    root: dict[str, Shard] = {}
    within: list[Shard] = []
    for group, weights in ledger.weights:
        found = shards(group, mesh)
        if not any(map(paths.repeated, found)):
            of_layer = {path for path, one in weights.items() if one.table is not None and one.table.within}
            within += [one for path, one in found.items() if path in of_layer]
            root |= {path: one for path, one in found.items() if path not in of_layer}
            continue
        what = next(iter(found)).split("*")[0] + "*"
        apart = [found[path] for path, one in weights.items() if one.is_expert and mesh.ep > 1]
        together = [one for one in found.values() if one not in apart]
        first, within = within, []
        if first:
            yield Unit(what, 1, mesh.weight_shards, [*first, *together])
        others = group.count - 1 if first else group.count
        if others > 0:
            yield Unit(what, others, mesh.weight_shards, together)
        if apart:
            yield Unit(paths.holder_of(apart[0].path), group.count, mesh.expert_shards, apart)
    if root:
        yield Unit("", 1, mesh.weight_shards, list(root.values()))


def with_rank_experts(ledger: Ledger, mesh: Mesh) -> Ledger:
    """The ledger of one of the ranks that shard the experts; each has the whole router."""

    def here(line: Line) -> Line:
        return replace(line, expert_axis=RANK_EXPERTS) if isinstance(line, Matmul) and line.expert_axis else line

    groups = (
        replace(
            group,
            lines=tuple(map(here, group.lines)),
            axes={**group.axes, RANK_EXPERTS: rounded_up(group.axes[EXPERTS], mesh.ep)},
        )
        if EXPERTS in group.axes
        else group
        for group in ledger.groups
    )
    return replace(ledger, groups=tuple(groups))


def with_rank_heads(ledger: Ledger, mesh: Mesh) -> Ledger:
    """The ledger of one of the ranks that shard only the weights of heads: a norm over all heads reads gathered queries
    and keys, and each rank runs attention on all heads."""

    def here(line: Line) -> Line:
        return line.renamed(RANK_HEADS) if isinstance(line, Matmul) and line.weight_axes() is not None else line

    def on_rank(group: Group) -> Group:
        if mesh.tp == 1 or not joint_qk_norm(group):
            return group
        shares = {RANK_HEADS[axis]: group.axes[axis] // mesh.tp for axis in RANK_HEADS}
        return replace(group, lines=tuple(map(here, group.lines)), axes={**group.axes, **shares})

    return replace(ledger, groups=tuple(map(on_rank, ledger.groups)))


def stored_elements(ledger: Ledger, mesh: Mesh) -> int:
    """Number of elements that the fullest rank stores, padding included."""
    return sum(unit.times * unit.elements for unit in fsdp_units(ledger, mesh))


def sharded_parameters(ledger: Ledger, mesh: Mesh, tensors: Mapping[str, str]) -> list[TorchParameter]:
    """Parameters of the rank with most, for an element-wise optimizer. `tensors`: the tensor of the class that stores
    each tensor of the ledger, or several of them."""
    found: dict[tuple[int, str], TorchParameter] = {}
    for number, unit in enumerate(fsdp_units(ledger, mesh)):
        for one in unit.shards:
            if is_routing_bias(one.path):
                continue  # no optimizer updates it
            key = number, tensors.get(one.path, one.path)
            elements = one.elements + (found[key].shape[0] if key in found else 0)
            found[key] = TorchParameter((elements,), unit.times, number if unit.what else None)
    return list(found.values())
