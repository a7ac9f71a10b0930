"""Collectives of data parallelism: rule 3 over gradients, and rule 2 if replicas shard optimizer state (ZeRO).

Li et al., "PyTorch Distributed" (arXiv 2006.15704), section 3.2.3: gradients are reduced in buckets, in the order in
which they are ready. Rajbhandari et al., "ZeRO" (1910.02054), section 7.2.1: sharded optimizer state needs a scatter
of the summed gradients and a gather of the updated weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tfacct.ledger import paths
from tfacct.ledger.einsum import packed_bytes
from tfacct.ledger.groups import Ledger
from tfacct.parallel.collectives import Collective, Kind, Over, When, collective
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.shard_shapes import fsdp_units, shards

MEBIBYTE = 2**20
FIRST, OTHERS = 1 * MEBIBYTE, 25 * MEBIBYTE
"""Bytes at which DistributedDataParallel closes the first bucket (small, so that reduction starts early) and all
others."""


def of_replicas(ledger: Ledger, mesh: Mesh, bits: int, tensors: Mapping[str, str]) -> Iterator[Collective]:
    """Collectives over `dp` in a training step. `tensors`: as in `buckets`."""
    axis = replica_axis(mesh)

    def summed(what: str, times: int, size: int, ranks: int) -> Collective:
        return collective(what, "all-reduce", axis, "backward", "weights", times, size, ranks, "B")

    if mesh.zero:
        for unit in fsdp_units(ledger, as_fsdp(mesh)):
            if unit.ranks == 1:  # experts of a single rank
                continue
            part = packed_bytes(unit.elements, bits)
            steps: tuple[tuple[Kind, When, int], ...] = (
                ("reduce-scatter", "backward", part),
                ("all-gather", "update", unit.ranks * part),
            )
            for kind, when, result in steps:
                yield collective(unit.what, kind, axis, when, "weights", unit.times, result, unit.ranks, "B")
    elif mesh.fsdp > 1:
        for unit in fsdp_units(ledger, mesh):
            yield summed(unit.what, unit.times, packed_bytes(unit.elements, bits), mesh.replicas)
    else:
        for size, count in Counter(buckets(ledger, mesh, bits, tensors)).items():
            yield summed("gradients", count, size, mesh.replicas)
        for unit in fsdp_units(ledger, mesh) if mesh.ep > 1 and mesh.expert_replicas > 1 else ():
            if unit.of_experts:
                yield summed(unit.what, unit.times, packed_bytes(unit.elements, bits), mesh.expert_replicas)


def replica_axis(mesh: Mesh) -> Over:
    """The axis of the ranks with the same weights. Sequence shards count as replicas if there are any."""
    return "dp" if mesh.dp > 1 else "cp" if mesh.cp > 1 else "ulysses"


def as_fsdp(mesh: Mesh) -> Mesh:
    """The mesh with its replicas as `fsdp` ranks."""
    return replace(mesh, fsdp=mesh.dp, dp=1)


def buckets(ledger: Ledger, mesh: Mesh, bits: int, tensors: Mapping[str, str]) -> list[int]:
    """Bytes of each bucket in the order in which gradients are ready, which DistributedDataParallel uses from the
    second step on.

    `tensors` maps each ledger tensor to the tensor of the class that stores it, in the order in which the class uses
    them; all others follow the ledger's order. Experts sharded by `ep` are in no bucket, because fewer ranks have the
    same ones."""
    key = "buckets", mesh.tp, mesh.ep, bits, bool(tensors), FIRST, OTHERS
    return ledger.once(key, lambda: bucket_sizes(reversed(_sizes(ledger, mesh, bits, tensors))))


def bucket_sizes(sizes: Iterable[int]) -> list[int]:
    """Bytes of the buckets filled by gradients of these sizes, in this order."""
    found: list[int] = []
    filled = 0
    for size in sizes:
        filled += size
        if filled >= (OTHERS if found else FIRST):
            found.append(filled)
            filled = 0
    return [*found, filled] if filled else found


def _sizes(ledger: Ledger, mesh: Mesh, bits: int, tensors: Mapping[str, str]) -> list[int]:
    """Bytes of every tensor on one rank, in the order of the forward pass; a tied one counts as embedding."""
    place = {path: number for number, path in enumerate(tensors)}
    ends: dict[str, int] = {}
    after: list[str] = []
    layers: dict[tuple[bool, int], list[int]] = {}
    for group, weights in ledger.weights:
        apart = mesh.ep > 1
        learned = {path for path, one in weights.items() if one.table is None or one.table.trained}
        every = shards(group, mesh).items()
        trained = {path: one for path, one in every if path in learned and not (apart and weights[path].is_expert)}
        sizes: dict[str, int] = {}
        for path, one in sorted(trained.items(), key=lambda found: place.get(found[0], 0)):
            name = tensors.get(path, path)
            sizes[name] = sizes.get(name, 0) + packed_bytes(one.rows * one.columns, bits)
        if any(map(paths.repeated, trained)):
            side = not paths.parse(next(iter(trained))).side  # layers of an encoder run first
            layers.update(((side, number), [*sizes.values()]) for number in group.numbers)
        else:
            after += [path for path in sizes if layers and path not in ends]
            ends = {**sizes, **ends}
    front = [size for path, size in ends.items() if path not in after]
    middle = (size for number in sorted(layers) for size in layers[number])
    return [*front, *middle, *(ends[path] for path in after)]
