"""Collectives of LoRA adapters on matmuls that `tp` shards, as peft shards them: of a column-parallel matmul the second
matrix, of a row-parallel one the first; every rank has the other one whole (`add_lora_tp_hooks_dtensor` in peft).

Ranks of `fsdp` shard the rows of both, as fully_shard does: they are gathered with the frozen weights of their layer,
and their gradients alone are scattered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tfacct.ledger.einsum import Axes, whole_bytes
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul
from tfacct.parallel.collectives import Collective, When, collective
from tfacct.parallel.data_parallel import axis, bucket_sizes
from tfacct.parallel.mesh import Mesh

FORWARD: When = "forward"
BACKWARD: When = "backward"


def of_frozen(found: Iterable[Collective], live: Sequence[tuple[int, Collection[str]]]) -> Iterator[Collective]:
    """Collectives of a step whose own weights are frozen: none of their gradients, and of what matmuls read only where
    something before them is trained. `live`: how many layers there are of each kind, and the operations whose input
    needs a gradient there; last what runs after the layers."""
    *layers, (_, after) = live
    every = sum(count for count, _ in layers)
    for one in found:
        if one.of in ("weights", "shared weights"):  # frozen ones have no gradients, and are gathered with adapters
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
    """What adapters of a rank, on products `on`, send in numbers of so many bits: of a product by rows the first
    matrix's result is a part of a sum, by columns the gradient of what the second one reads."""
    result = whole_bytes(at["B"] * at["T"] * rank, bits)
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
    """What ranks of `fsdp` gather of frozen weights and adapters, and scatter of the gradients of these. `layers`: how
    many there are of each kind, and bytes of a rank's shard of the weights and of the adapters of one; `root`: bytes of
    that of weights in no layer. `staged`: in a pipeline weights stay gathered for all micro-batches."""
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
    """What copies reduce, each with a batch: gradients of the adapters alone, in DistributedDataParallel's buckets.
    `adapters`: bytes of each, and the numbers of its layers."""
    own = list(adapters)
    layers = sorted({number for _, numbers in own for number in numbers}, reverse=True)
    ready = (int(size) for layer in layers for size, numbers in reversed(own) if layer in numbers)
    for size in bucket_sizes(ready) if mesh.replicas > 1 else ():
        yield collective("adapters", "all-reduce", axis(mesh), BACKWARD, "weights", 1, size, mesh.replicas, "B")
