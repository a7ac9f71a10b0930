"""Elements of each tensor on the rank that stores most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tfacct.accounts.products import stored
from tfacct.ledger import paths
from tfacct.ledger.evaluated import Tensor
from tfacct.loading.model import LoadedModel
from tfacct.loading.skipped import Skipped
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.pipeline import stage_ledgers
from tfacct.parallel.shard_shapes import shard, stored_elements
from tfacct.parallel.support import check_mesh, check_rows, check_sizes, supported_on
from tfacct.parallel.verified import verified


def weight_shards(models: Sequence[LoadedModel], mesh: Mesh) -> tuple[Sequence[LoadedModel], list[Skipped]]:
    """The models that the mesh divides, and the others. Raises TfacctError if it divides none."""
    alone = replace(mesh, sp=False, cp=1)  # which alone shard no weight

    def check(model: LoadedModel) -> None:
        check_mesh(model, alone)
        check_sizes(model, alone, {})
        if not verified(model.family, "torch_plan"):
            check_rows(model, mesh)  # which fsdp and cp ranks shard together

    found, _, others = supported_on(models, check)
    return found, others


class FullestRank(NamedTuple):
    """The rank that stores most: its number of each tensor, by path and shape as summed in `stored`, and its stage."""

    mesh: Mesh
    counts: dict[tuple[str, tuple[Any, ...]], Any]
    stage: int

    def holds(self, tensor: Tensor) -> int:
        """Stored elements of a tensor, over all layers."""
        return int(self.counts.get(_place(tensor), 0) * shard(tensor.parameter, tensor.axes, self.mesh).elements)


def _place(tensor: Tensor) -> tuple[str, tuple[Any, ...]]:
    """Path and shape; only the path outside the layers, where a head reads a transposed embedding."""
    return tensor.path, tensor.shape if paths.repeated(tensor.path) else ()


def fullest_rank(model: LoadedModel, mesh: Mesh) -> FullestRank:
    """The rank that stores most of a model."""
    every = stage_ledgers(model.ledger, mesh)
    elements = [stored_elements(stage, mesh) for stage in every]
    stage = elements.index(max(elements))
    return FullestRank(mesh, {_place(one): one.count for one in stored(every[stage].tensors())}, stage + 1)
