"""The sum over ranks is the full model. Kind: law."""

from collections.abc import Callable
from string import ascii_lowercase

import pytest

import tfacct
from tests.helpers.rank_configs import SOME, even
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.shard_model import on_ranks
from tfacct.parallel.shard_shapes import shard, stored_elements

MESHES = [*(Mesh(tp=tp) for tp in (2, 4, 8)), Mesh(fsdp=8)]
MESHES += [Mesh(fsdp=8, ep=8), Mesh(tp=2, fsdp=4, ep=4), Mesh(tp=4, ep=4)]


def adds_up(name: str) -> int:
    """Number of meshes that divide a preset evenly; their ranks together store all parameters."""
    loaded = tfacct.load(name).loaded
    tensors, count = loaded.ledger.tensors(), 0
    for mesh in MESHES:
        if not even(loaded, mesh):
            continue
        count += 1
        elements_of_rank = 0
        for tensor in tensors:
            one = shard(tensor.parameter, tensor.axes, mesh)
            elements = one.rows * one.columns
            # Ranks with different shards of the tensor.
            apart = mesh.ep if tensor.parameter.is_expert and mesh.ep > 1 else 1
            if mesh.sharded_axis(tensor.parameter.axes, tensor.parameter.is_expert):
                apart *= mesh.tp
            assert elements * apart == tensor.elements, (mesh, tensor.path)
            elements_of_rank += tensor.count * one.elements
        assert elements_of_rank == stored_elements(loaded.ledger, mesh)
        if mesh.fsdp == mesh.ep == 1:
            operations_add_up(loaded, mesh)
    return count


def operations_add_up(loaded: LoadedModel, mesh: Mesh) -> None:
    """A rank does its share of the FLOPs of matmuls with a sharded axis, and all FLOPs of the others."""
    rank = on_ranks(loaded, mesh.tp)
    assert sum(rank.ledger.parameters().values()) == stored_elements(loaded.ledger, mesh)
    at = Workload(3, 7, 2).axes()
    for whole, own in zip(loaded.ledger.products(at), rank.ledger.products(at), strict=True):
        axis_names = whole.line.einsum.every
        ways = mesh.tp if mesh.sharded_axis(axis_names) else 1
        assert own.line.flops(own.axes) * ways == whole.line.flops(whole.axes), (mesh, whole.path)


def cache_adds_up(name: str) -> int:
    """Number of meshes that divide a preset evenly; their ranks together hold the whole cache."""
    model, count = tfacct.load(name), 0
    for tp in (2, 4, 8):
        if even(model.loaded, Mesh(tp=tp)):
            count += 1
            one, latent = model.kv(ctx=512, tp=tp), model.kv(ctx=512).models[0]["kv_heads"] is None
            # Every rank caches the whole latent; keys and values are those of its heads.
            assert one.kv_cache_bytes * (1 if latent else tp) == one.whole["kv_cache_bytes"], (name, tp)
            assert one.kv_cache_bytes == model.memory(ctx=512, tp=tp, dtype="bf16").kv_cache_bytes
    return count


def work_adds_up(name: str) -> int:
    """Number of meshes that divide a preset evenly; their ranks together do all FLOPs."""
    model, count = tfacct.load(name), 0
    for tp in (2, 8):
        if not even(model.loaded, Mesh(tp=tp)):
            continue
        count += 1
        for more in ({"train": True, "masked": True}, {"decode": True}):
            one = model.flops(ctx=512, tp=tp, **more)
            lines = {(line["path"], line.get("blocks")): line for line in model.flops(ctx=512, **more).lines}
            for line in one.lines:
                # Lines with a sharded axis are a share; each rank does all others whole.
                axis_names = {*line["spec"].replace(",", "").split()} - {"Nx"}  # heads of an indexer are whole
                divided = {axis.rstrip(ascii_lowercase) for axis in axis_names} & {"K", "N", "F", "V"}
                shares = tp if divided else 1
                assert line["flops"] * shares == lines[line["path"], line.get("blocks")]["flops"], (name, tp, line)
            assert one.whole["total_flops"] == sum(line["flops"] for line in lines.values())
    return count


def experts_add_up(name: str) -> int:
    """Number of meshes whose ranks together store all experts; the parameters of a rank are those of `params`."""
    model, count = tfacct.load(name), 0
    banks = [tensor for tensor in model.loaded.ledger.tensors() if tensor.parameter.is_expert]
    every = sum(tensor.count * tensor.elements for tensor in banks)
    whole = model.params().total_params
    for tp, ep in ((1, 4), (2, 4), (4, 4)) if banks else ():
        if not even(model.loaded, Mesh(tp=tp)) or not even(model.loaded, Mesh(tp=tp, fsdp=ep // tp, ep=ep)):
            continue
        count += 1
        one = model.memory(ctx=64, tp=tp, ep=ep, dtype="bf16")
        # A rank of tp, less its part of each expert; what is added to an expert's sum is whole.
        parts = sum(t.count * t.elements // (tp if "Fe" in t.parameter.axes else 1) for t in banks)
        dense = model.memory(ctx=64, tp=tp, dtype="bf16")
        assert one.total_params == dense.total_params - parts + every // ep, (name, tp, ep)
        assert tp == 1 or one.kv_cache_bytes == dense.kv_cache_bytes
        assert one.whole["total_params"] == whole
        if tp == ep:
            assert one.total_params == model.params(tp=tp, ep=ep).rank_params
    return count


WHOLE_VOCABULARIES = tuple(name for name in SOME if name != "gpt2")
MIXTURES = ("mixtral-8x7b", "deepseek-v2-lite", "qwen1.5-moe-a2.7b", "qwen3-30b-a3b")
LAWS: dict[Callable[[str], int], tuple[tuple[str, ...], int]] = {
    adds_up: (SOME, 150),
    cache_adds_up: (WHOLE_VOCABULARIES, 120),
    work_adds_up: (WHOLE_VOCABULARIES, 120),
    experts_add_up: (MIXTURES, 20),
}
"""Laws, with the presets that CI tests them on, and the least number of meshes over all presets."""


@pytest.mark.parametrize(("law", "name"), [(law, name) for law, (names, _) in LAWS.items() for name in names])
def test_ranks_together_are_the_model(law: Callable[[str], int], name: str) -> None:
    assert law(name) > 0


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_ranks_of_every_preset_together_are_the_model(law: Callable[[str], int]) -> None:
    assert sum(law(name) > 0 for name in presets.names()) >= LAWS[law][1]
