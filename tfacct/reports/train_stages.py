"""The training step of a pipeline's fullest rank: the microbatch that runs, and those in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tfacct.accounts.sharding.flights import (
    Instant,
    instants,
    ledger_of_stage,
    lent_to,
    logits,
    pass_of_stage,
    returned,
    stays,
    stream,
    waits,
)
from tfacct.accounts.sharding.mesh import Mesh, padded, replicated
from tfacct.accounts.sharding.stages import Stage, blocks_in, microbatches, part, sorts, stages
from tfacct.accounts.training import InFlight, Step
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Residual
from tfacct.ledger.kept import bytes_each
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports import mesh as meshes
from tfacct.reports import pipes
from tfacct.reports.unruled import in_parallel
from tfacct.training.recipe import Recipe

MEASURED = frozenset((Attention, FeedForward, Norm, Residual, Embedding, Head))
"""Parts of models whose stages were measured under torch's schedules."""
LENT = "With adapters 107 peaks of 110 small models were this to the byte, three up to 6% higher."
Make = Callable[[list[Stage]], Step]
"""The step of a rank with some stages, all blocks still in its pass."""


def candidates(
    subject: LoadedModel, mesh: Mesh, work: Workload, accumulate: bool, make: Make
) -> Iterator[tuple[list[Stage], Step]]:
    """Steps of ranks among which the one with the highest peak is, with the stages of each. Raises TfacctError."""
    times = microbatches(mesh, work.axes(), train=True)
    every = stages(blocks_in(subject.ledger), mesh)
    for alike in sorts(subject.ledger, every).values():
        # Earlier ranks have more in flight, later ones more that waits.
        ends = {alike[0], alike[-1]} if mesh.schedule == "zero-bubble" else alike[:1]
        for rank in ends:
            yield from ((every[rank], step) for step in _steps(mesh, rank, every[rank], times, accumulate, make))


def _steps(mesh: Mesh, rank: int, own: list[Stage], times: int, accumulate: bool, make: Make) -> Iterator[Step]:
    """Steps of one rank among which its fullest is: the most beside each stage, first and later microbatches apart."""
    starts = instants(mesh, rank, times)
    base = make(own)
    runs = [pass_of_stage(base.run, stage) for stage in own]
    parts = [
        base._replace(
            run=run, ledger=ledger_of_stage(part(base.ledger, [stage]), stage), adapters=lent_to(base.adapters, stage)
        )
        for run, stage in zip(runs, own, strict=True)
    ]
    weights = [one.parameters for one in parts]
    kept = [one.kept() + one.closures() for one in parts]
    gives = [
        _Gives(returned(each, stage, 1), stream(each), logits(each)) for each, stage in zip(parts, own, strict=True)
    ]
    loss = bytes_each(parts[-1].run.loss, parts[-1].stored)
    pending = waits(parts[0]) if mesh.schedule == "zero-bubble" else 0

    def gradients(start: Instant) -> Any:
        return sum(
            size for stage, size in enumerate(weights) if stage != start.stage and (accumulate or stage in start.done)
        )

    def beside(start: Instant) -> int:
        flying = sum(count * size for count, size in zip(start.flying, kept, strict=True))
        given, _ = _given(mesh, gives, own, start, loss)
        return int(flying + start.waiting * pending + gradients(start) + given)

    most: dict[tuple[int, bool], Instant] = {}
    for start in sorted(starts, key=lambda start: (beside(start), start.flying)):
        most[start.stage, accumulate or start.stage in start.done] = start
    for stage in range(len(own)):  # with gradients of earlier microbatches there is more, where as many are in flight
        first, later = most.get((stage, False)), most.get((stage, True))
        if first and later and beside(later) >= beside(first):
            del most[stage, False]
    there = sum(stays(part, stage, times) for part, stage in zip(parts, own, strict=True))
    for (stage, earlier), start in most.items():
        passes = tuple(zip(runs, start.flying, strict=True))
        others = sum(weights) - weights[stage]
        given, forwards = _given(mesh, gives, own, start, loss)
        flight = InFlight(
            passes,
            own[stage].blocks.start,
            start.waiting * pending,
            others,
            gradients(start),
            rank,
            there,
            given,
            forwards,
            received=not own[stage].last,
        )
        yield parts[stage]._replace(stage=flight, accumulate=earlier, holds_logits=own[stage].last)
    if mesh.fsdp > 1 and base.adapters:  # gradients of all weights are more than what gathering them takes
        ahead = InFlight(
            ((runs[0], 1),),
            own[0].blocks.start,
            rank=rank,
            stays=there,
            returned=gives[0].returned - (gives[0].logits if own[0].last else 0),
            forwards=0 if own[0].last else -gives[0].stream,
            received=not own[0].last,
            gathers=True,
        )
        yield parts[0]._replace(stage=ahead, accumulate=False, holds_logits=own[0].last)


class _Gives(NamedTuple):
    """Bytes of what a stage gave on of a microbatch, less what it keeps of it; of the stream; of the logits."""

    returned: Any
    stream: Any
    logits: Any


def _given(mesh: Mesh, gives: list[_Gives], own: list[Stage], start: Instant, loss: int) -> tuple[Any, Any]:
    """Bytes of what a rank's stages gave on and back, but for the logits of the one that runs, and what comes to these
    in a forward pass, in which its own is not there yet. `loss`: bytes of one."""
    given = sum(flying * each.returned for each, flying in zip(gives, start.flying, strict=True))
    runs, later = gives[start.stage], bool(start.done)
    last = own[start.stage].last
    if mesh.schedule == "1f1b" and later and not own[0].first:  # torch's loop names what it gave back until the next
        given += runs.stream
    if own[-1].last:  # the losses of all microbatches up to here stay
        given += (start.forwards - last) * loss
    if not last:
        return given, -runs.stream
    named = mesh.schedule == "gpipe" or (mesh.schedule == "1f1b" and later)  # and the last logits, up to the next ones
    return given - runs.logits, runs.logits if named else 0


def facts(mesh: Mesh, work: Workload, step: Step) -> dict[str, Any]:
    """Stage, microbatches and what is in flight, as in the JSON."""
    assert step.stage is not None
    times = microbatches(mesh, work.axes(), train=True)
    return {
        "stage": step.stage.rank + 1,
        "in_flight": sum(count for _, count in step.stage.passes),
        **pipes.waits_facts(mesh, times, train=True),
    }


def divided_alike(subject: LoadedModel, mesh: Mesh) -> bool:
    """True if stages that `tp` divides so were measured: by torch's plan, evenly, with a head of its own."""
    head = subject.architecture.head
    own = head is not None and not head.tied and meshes.TORCH in subject.config.divided
    even = not padded(subject.ledger, mesh) and not replicated(subject.ledger, mesh)
    return own and even and not (mesh.sp or mesh.plan != "torch" or meshes.gathers_heads(subject))


def unmeasured(subject: LoadedModel, recipe: Recipe, work: Workload) -> str:
    """What of a stage's peak was not measured to the byte under torch's schedules; empty if all of it was."""
    mesh = recipe.mesh
    assert mesh is not None
    if mesh.schedule == "zero-bubble":
        return "torch's own schedule keeps all tensors of a microbatch until its gradients of weights: that is more."
    if mesh.chunks > 1:
        return "Under torch's own schedule the peaks of small models were within 1% of this."
    if mesh.tp > 1 and (mesh.ranks > mesh.tp * mesh.pp or not divided_alike(subject, mesh)):
        return "What collectives of tp hold on the way is not counted."
    if mesh.tp > 1 and recipe.lora is not None:
        return LENT
    if mesh.dp > 1:
        what = "copies of ranks of fsdp" if mesh.fsdp > 1 else "buckets"
        return f"What {what} hold beside stages was not measured."
    if microbatches(mesh, work.axes(), train=True) < mesh.pp:
        return "torch's own schedules take as many microbatches as there are stages, or more."
    shape = subject.architecture
    alike = all(type(part) in MEASURED for part in shape.parts()) and not any(map(in_parallel, shape.stacks))
    if recipe.keep_logits or not alike:
        return "What stages hold was measured of attention and networks one after the other, logits let go."
    return ""


def notes(subject: LoadedModel, recipe: Recipe, work: Workload, step: Step) -> list[str]:
    """What is said of a stage's step."""
    mesh = recipe.mesh
    assert step.stage is not None and mesh is not None
    times = microbatches(mesh, work.axes(), train=True)
    flying = sum(count for _, count in step.stage.passes)
    whose = f", each of one of {mesh.chunks:,} stages" if mesh.chunks > 1 else ""
    waiting = " What gradients of weights wait with is counted too." if step.stage.waiting else ""
    said = unmeasured(subject, recipe, work)
    return [
        f"{pipes.division(subject.ledger, mesh)} Shown is rank {step.stage.rank + 1:,}, the fullest, with what it keeps"
        f" of {flying:,} microbatch{'' if flying == 1 else 'es'} in flight{whose}.{waiting} It also holds what"
        f" torch's stages hold: tensors to receive all {times:,} into, and results passed on of those in flight."
        f" {said}".rstrip(),
        pipes.waits(mesh, times),
    ]
