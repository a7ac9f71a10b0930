"""What copies of a model send, each with a batch of its own: rule 3 over gradients, and rule 2 where copies divide what
an optimizer keeps.

Li et al., "PyTorch Distributed" (arXiv 2006.15704), section 3.2.3: gradients are reduced in buckets, in the order in
which they are ready. Rajbhandari et al., "ZeRO" (1910.02054), section 7.2.1: moments that are divided, and gradients
with them, want a scatter of the sums and a gather of what was updated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tfacct.ledger import paths
from tfacct.ledger.einsum import whole_bytes
from tfacct.ledger.groups import Ledger
from tfacct.parallel.collectives import Collective, Kind, Over, When, collective
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.shard_shapes import fsdp_units, shards

MEBIBYTE = 2**20
FIRST, OTHERS = 1 * MEBIBYTE, 25 * MEBIBYTE
"""Bytes at which DistributedDataParallel closes a bucket: the first early, so that reducing starts early."""


def of_replicas(ledger: Ledger, mesh: Mesh, bits: int, tensors: Mapping[str, str]) -> Iterator[Collective]:
    """Collectives over `dp` of a training step. `tensors`: as `buckets` takes them."""
    if mesh.zero:
        for unit in fsdp_units(ledger, as_fsdp(mesh)):
            if unit.ranks == 1:  # experts that no other rank has
                continue
            part = whole_bytes(unit.elements, bits)
            steps: tuple[tuple[Kind, When, int], ...] = (
                ("reduce-scatter", "backward", part),
                ("all-gather", "update", unit.ranks * part),
            )
            for kind, when, result in steps:
                yield collective(unit.what, kind, axis(mesh), when, "weights", unit.times, result, unit.ranks, "B")
    elif mesh.fsdp > 1:
        for unit in fsdp_units(ledger, mesh):
            part = whole_bytes(unit.elements, bits)
            yield collective(
                unit.what, "all-reduce", axis(mesh), "backward", "weights", unit.times, part, mesh.replicas, "B"
            )
    else:
        for size, count in Counter(buckets(ledger, mesh, bits, tensors)).items():
            yield collective(
                "gradients", "all-reduce", axis(mesh), "backward", "weights", count, size, mesh.replicas, "B"
            )
        for unit in fsdp_units(ledger, mesh) if mesh.ep > 1 and mesh.expert_replicas > 1 else ():
            if unit.apart:
                part = whole_bytes(unit.elements, bits)
                yield collective(
                    unit.what,
                    "all-reduce",
                    axis(mesh),
                    "backward",
                    "weights",
                    unit.times,
                    part,
                    mesh.expert_replicas,
                    "B",
                )


def axis(mesh: Mesh) -> Over:
    """The axis of the ranks that have the same weights: parts of a sequence count among copies, where there are any."""
    return "dp" if mesh.dp > 1 else "cp" if mesh.cp > 1 else "ulysses"


def as_fsdp(mesh: Mesh) -> Mesh:
    """The mesh whose copies divide what ranks of `fsdp` would."""
    return replace(mesh, fsdp=mesh.dp, dp=1)


def buckets(ledger: Ledger, mesh: Mesh, bits: int, tensors: Mapping[str, str]) -> list[int]:
    """Bytes of each bucket, once they follow the order in which gradients are ready, from the second step on.

    `tensors`: in the order in which the model's class computes with them, the tensor there that one here is, or is a
    part of. What it does not name has the ledger's order. Experts that `ep` divides are in none: fewer ranks have the
    same.
    """
    key = "buckets", mesh.tp, mesh.ep, bits, bool(tensors), FIRST, OTHERS
    if key not in ledger.known:
        ledger.known[key] = bucket_sizes(reversed(_sizes(ledger, mesh, bits, tensors)))
    found: list[int] = ledger.known[key]
    return found


def bucket_sizes(sizes: Iterable[int]) -> list[int]:
    """Bytes of the buckets that gradients of these sizes fill, in the order in which they are ready."""
    found: list[int] = []
    held = 0
    for size in sizes:
        held += size
        if held >= (OTHERS if found else FIRST):
            found.append(held)
            held = 0
    return [*found, held] if held else found


def _sizes(ledger: Ledger, mesh: Mesh, bits: int, tensors: Mapping[str, str]) -> list[int]:
    """Bytes of every tensor on one rank, in the order of the forward pass; a tied one is a table's."""
    place = {path: number for number, path in enumerate(tensors)}
    ends: dict[str, int] = {}
    behind: list[str] = []
    blocks: dict[tuple[bool, int], list[int]] = {}
    for group, weights in ledger.weights:
        apart = mesh.ep > 1
        learned = {path for path, one in weights.items() if one.table is None or one.table.trained}
        every = shards(group, mesh).items()
        own = {path: one for path, one in every if path in learned and not (apart and weights[path].bank)}
        sizes: dict[str, int] = {}
        for path, one in sorted(own.items(), key=lambda found: place.get(found[0], 0)):
            name = tensors.get(path, path)
            sizes[name] = sizes.get(name, 0) + whole_bytes(one.rows * one.columns, bits)
        if any(map(paths.repeated, own)):
            side = not paths.parse(next(iter(own))).side  # an encoder's blocks run first
            blocks.update(((side, number), [*sizes.values()]) for number in group.numbers)
        else:
            behind += [path for path in sizes if blocks and path not in ends]
            ends = {**sizes, **ends}
    front = [size for path, size in ends.items() if path not in behind]
    middle = (size for number in sorted(blocks) for size in blocks[number])
    return [*front, *middle, *(ends[path] for path in behind)]
