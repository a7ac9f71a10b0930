"""The sum over ranks is the full model. Kind: law."""

from __future__ import annotations

import pytest

import tfacct
from tests.helpers.rank_configs import SOME, even
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.shard_model import on_ranks
from tfacct.parallel.shard_shapes import shard, stored_elements

MESHES = (
    Mesh(tp=2),
    Mesh(tp=4),
    Mesh(tp=8),
    Mesh(fsdp=8),
    Mesh(fsdp=8, ep=8),
    Mesh(tp=2, fsdp=4, ep=4),
    Mesh(tp=4, ep=4),
)


def adds_up(name: str) -> int:
    """Number of meshes that divide a preset evenly, all of whose ranks hold the whole between them."""
    loaded = tfacct.load(name).loaded
    tensors, count = loaded.ledger.tensors(), 0
    for mesh in MESHES:
        if not even(loaded, mesh):
            continue
        count += 1
        held = 0
        for tensor in tensors:
            one = shard(tensor.parameter, tensor.axes, mesh)
            elements = one.rows * one.columns
            # Ranks that a letter of the tensor tells apart.
            apart = mesh.ep if tensor.parameter.is_expert and mesh.ep > 1 else 1
            if mesh.sharded_axis(tensor.parameter.axes, tensor.parameter.is_expert):
                apart *= mesh.tp
            assert elements * apart == tensor.elements, (mesh, tensor.path)
            held += tensor.count * one.elements
        assert held == stored_elements(loaded.ledger, mesh)
        if mesh.fsdp == mesh.ep == 1:
            operations_add_up(loaded, mesh)
    return count


def operations_add_up(loaded: LoadedModel, mesh: Mesh) -> None:
    """FLOPs of products with a divided letter are a share on each rank; all others are done by every rank."""
    (rank,) = on_ranks([loaded], mesh.tp)
    assert sum(rank.ledger.parameters().values()) == stored_elements(loaded.ledger, mesh)
    at = Workload(3, 7, 2).axes()
    for whole, own in zip(loaded.ledger.products(at), rank.ledger.products(at), strict=True):
        axis_names = whole.line.einsum.every
        ways = mesh.tp if mesh.sharded_axis(axis_names) else 1
        assert own.line.flops(own.axes) * ways == whole.line.flops(whole.axes), (mesh, whole.path)


@pytest.mark.parametrize("name", SOME)
def test_ranks_hold_and_do_the_whole(name: str) -> None:
    assert adds_up(name) > 0


@pytest.mark.slow
def test_ranks_of_every_preset_hold_and_do_the_whole() -> None:
    counts = {name: adds_up(name) for name in presets.names()}
    assert sum(count > 0 for count in counts.values()) >= 150, counts
