"""What the stages of a pipeline send: the stream to the next one, its gradient back, and the sum of a tied table's
gradients, which the first stage has and the last.

Shoeybi et al., "Megatron-LM" (arXiv 1909.08053); Narayanan et al. (2104.04473), section 2.2;
torch.distributed.pipelining.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tfacct.ledger.einsum import Axes, whole_bytes
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Parameter
from tfacct.parallel.logits import AfterHead
from tfacct.parallel.mesh import Mesh, check
from tfacct.parallel.rules import collectives
from tfacct.parallel.sends import Collective, When, collective
from tfacct.parallel.shards import shard
from tfacct.parallel.stages import Stage, blocks_in, microbatches, part, sorts, stages

ONCE = ("weights", "shared weights")
"""What is sent once in a step, however many microbatches it takes: sums of the gradients of all."""


def in_pipeline(
    ledger: Ledger,
    mesh: Mesh,
    at: Axes,
    bits: int,
    *,
    train: bool = False,
    shares: int | None = None,
    modules: Mapping[str, str] | None = None,
    tensors: Mapping[str, str] | None = None,
    after: AfterHead = "divided",
    reduced: int | None = None,
) -> list[list[Collective]]:
    """Collectives of each rank of `pp`, in a forward pass or a training step of all its microbatches, as `collectives`
    takes its arguments. Raises UsageError for a mesh that does not divide what it must."""
    check(ledger, mesh, at)
    times = microbatches(mesh, at, train)
    each = {**at, "B": at["B"] // times}
    inside = replace(mesh, pp=1, chunks=1)
    table = _tied(ledger) if train else None
    every = stages(blocks_in(ledger), mesh)
    found: dict[int, list[Collective]] = {}
    for alike in sorts(ledger, every).values():
        lines = collectives(
            part(ledger, every[alike[0]]),
            inside,
            each,
            bits,
            train=train,
            shares=shares,
            modules=modules,
            tensors=tensors,
            after=after,
            reduced=reduced,
        )
        # Weights stay gathered until the last backward pass.
        held = (one for one in lines if (one.over, one.when, one.kind) != ("fsdp", "backward", "all-gather"))
        own = [one if one.of in ONCE else repeated(one, times) for one in held]
        for rank in alike:
            if 0 < rank - 1 in alike and rank < mesh.pp - 1:  # between two others, as the one before
                found[rank] = found[rank - 1]
                continue
            ends = [_summed(*table, mesh, reduced or bits)] if table and rank in (0, mesh.pp - 1) else []
            found[rank] = [*own, *_sent(ledger, every[rank], mesh, each, bits, times, train), *ends]
    return [found[rank] for rank in range(mesh.pp)]


def repeated(one: Collective, times: int) -> Collective:
    """The same for so many microbatches."""
    return one._replace(calls=times * one.calls, bytes=times * one.bytes, sent=times * one.sent)


def _sent(
    ledger: Ledger, own: Sequence[Stage], mesh: Mesh, at: Axes, bits: int, times: int, train: bool
) -> Iterator[Collective]:
    """The stream that a rank's stages give to the next ones, and its gradients that they give back."""
    width = next(group.axes["D"] for group in ledger.groups if group.numbers)
    tokens = at["T"] // (mesh.parts * (mesh.tp if mesh.sp else 1))
    each = whole_bytes(at["B"] * tokens * width, bits)
    passes: list[tuple[When, int]] = [("forward", sum(not stage.last for stage in own))]
    passes += [("backward", sum(not stage.first for stage in own))] if train else []
    for when, others in passes:
        calls = times * others
        if calls:
            yield Collective("blocks", "send", "pp", when, "stream", calls, calls * each, calls * each, "L")


def _tied(ledger: Ledger) -> tuple[Parameter, Axes] | None:
    """The table that stands in front of the blocks and behind them; None where there is none."""
    ends = [group for group in ledger.groups if not group.numbers]
    held = [{one.path: (one, group.axes) for line in group.lines for one in line.parameters()} for group in ends]
    both = [own for path, own in held[0].items() if any(path in other for other in held[1:])] if held else []
    return both[0] if both else None


def _summed(table: Parameter, axes: Axes, mesh: Mesh, bits: int) -> Collective:
    """The all-reduce of the gradient of a table that two stages have."""
    size = whole_bytes(shard(table, axes, mesh).elements, bits)
    return collective(table.path, "all-reduce", "pp", "backward", "shared weights", 1, size, 2, "L")
