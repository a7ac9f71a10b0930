"""Collectives of LoRA adapters on matmuls that `tp` shards, as in peft (`add_lora_tp_hooks_dtensor`): it shards the
second matrix of adapters on column-parallel matmuls and the first on row-parallel ones, and replicates the other
matrix.

`fsdp` shards the rows of both matrices, as fully_shard does. They are gathered with the frozen weights of their layer,
and only their gradients are reduce-scattered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tfacct.ledger.einsum import Axes, packed_bytes
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul
from tfacct.parallel.collectives import Collective, When, collective
from tfacct.parallel.data_parallel import bucket_sizes, replica_axis
from tfacct.parallel.mesh import Mesh

FORWARD: When = "forward"
BACKWARD: When = "backward"


def of_frozen(found: Iterable[Collective], live: Sequence[tuple[int, Collection[str]]]) -> Iterator[Collective]:
    """Collectives of a step with frozen weights. There are no weight gradients, and gradients of inputs only if
    something earlier is trained. `live`: for each kind of layers, their number and the operations whose input needs a
    gradient; the last entry is what runs after the layers."""
    *layers, (_, after) = live
    every = sum(count for count, _ in layers)
    for one in found:
        # frozen weights have no gradients, and are gathered with the adapters
        if one.of in ("weights", "shared weights"):
            continue
        if one.when == FORWARD or one.over == "pp":
            yield one
        elif one.of == "stream":
            needed = f"{one.what}.weight"
            there, whole = int(needed in after), 1
            if "*" in one.what:
                there, whole = sum(count for count, operations in layers if needed in operations), every
            calls = one.calls * there // whole
            if calls:
                each, sent = one.bytes // one.calls, one.sent // one.calls
                yield one._replace(calls=calls, bytes=each * calls, sent=sent * calls)


def of_adapters(ledger: Ledger, mesh: Mesh, on: frozenset[str], rank: int, at: Axes, bits: int) -> Iterator[Collective]:
    """Collectives of a rank's adapters on the matmuls `on`, with `bits` per element. Row-parallel: the output of the
    first matrix is a partial sum; column-parallel: the input gradient of the second one is."""
    result = packed_bytes(at["B"] * at["T"] * rank, bits)
    for group in ledger.groups:
        for line in group.lines:
            if not isinstance(line, Matmul) or line.path not in on:
                continue
            sharded = mesh.sharded_axis(line.einsum.every)
            if sharded is not None:
                rows = sharded not in line.einsum.out
                what, when = f"{line.path}.lora_{'A' if rows else 'B'}", FORWARD if rows else BACKWARD
                yield collective(what, "all-reduce", "tp", when, "stream", group.count, result, mesh.tp, sharded)


def of_units(
    layers: Iterable[tuple[int, int, int]], root: int, mesh: Mesh, *, staged: bool = False
) -> Iterator[Collective]:
    """All-gathers of frozen weights and adapters over `fsdp`, and reduce-scatters of the adapters' gradients. `layers`:
    for each kind of layers, their number and the bytes of one layer's weights and adapters on a rank; `root`: bytes of
    the weights outside the layers on a rank. `staged`: in a pipeline, weights stay gathered for all micro-batches."""
    ranks = mesh.weight_shards
    for count, weights, adapters in layers:
        for when in (FORWARD,) if staged else (FORWARD, BACKWARD):
            whole = ranks * (weights + adapters)
            yield collective("blocks.*", "all-gather", "fsdp", when, "weights", count, whole, ranks, "B")
        yield collective("blocks.*", "reduce-scatter", "fsdp", BACKWARD, "weights", count, adapters, ranks, "B")
        if mesh.replicas > 1:
            yield collective("blocks.*", "all-reduce", "dp", BACKWARD, "weights", count, adapters, mesh.replicas, "B")
    if root:
        yield collective("", "all-gather", "fsdp", FORWARD, "weights", 1, ranks * root, ranks, "B")


def of_copies(adapters: Iterable[tuple[int, Sequence[int]]], mesh: Mesh) -> Iterator[Collective]:
    """All-reduces over data-parallel replicas: only gradients of the adapters, in DistributedDataParallel's buckets.
    `adapters`: bytes of each, and the numbers of its layers."""
    every = list(adapters)
    layers = sorted({number for _, numbers in every for number in numbers}, reverse=True)
    ready = (int(size) for layer in layers for size, numbers in reversed(every) if layer in numbers)
    for size in bucket_sizes(ready) if mesh.replicas > 1 else ():
        yield collective("adapters", "all-reduce", replica_axis(mesh), BACKWARD, "weights", 1, size, mesh.replicas, "B")
