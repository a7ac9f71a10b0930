"""The training step of a pipeline's fullest rank: the microbatch that runs, and those in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tfacct.accounts.sharding.flights import Instant, instants, ledger_of_stage, pass_of_stage, waits
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.stages import Stage, blocks_in, microbatches, part, sorts, stages
from tfacct.accounts.training import InFlight, Step
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports import pipes

Make = Callable[[list[Stage]], Step]
"""The step of a rank with some stages, all blocks still in its pass."""


def candidates(
    subject: LoadedModel, mesh: Mesh, work: Workload, accumulate: bool, make: Make
) -> list[tuple[list[Stage], Step]]:
    """Steps of ranks among which the one with the highest peak is, with the stages of each. Raises TfacctError."""
    times = microbatches(mesh, work.axes(), train=True)
    every = stages(blocks_in(subject.ledger), mesh)
    found: list[tuple[list[Stage], Step]] = []
    for sort, alike in sorts(subject.ledger, every).items():
        if _less(subject, mesh, sort, every):
            continue
        # Earlier ranks have more in flight, later ones more that waits.
        ends = {alike[0], alike[-1]} if mesh.schedule == "zero-bubble" else alike[:1]
        for rank in ends:
            found += ((every[rank], step) for step in _steps(mesh, rank, every[rank], times, accumulate, make))
    return found


def _less(subject: LoadedModel, mesh: Mesh, sort: tuple[object, ...], every: list[list[Stage]]) -> bool:
    """True if a rank has less than the first one: equal blocks, no table and no head, and no more in flight."""
    alone = sum(bool(group.numbers) for group in subject.ledger.groups) == 1
    ends = sort[-2:]
    return alone and not any(ends) and mesh.schedule != "zero-bubble" and len(every) > 1


def _steps(mesh: Mesh, rank: int, own: list[Stage], times: int, accumulate: bool, make: Make) -> Iterator[Step]:
    """Steps of one rank among which its fullest is: the most beside each stage, first and later microbatches apart."""
    starts = instants(mesh, rank, times)
    base = make(own)
    runs = [pass_of_stage(base.run, stage) for stage in own]
    parts = [
        base._replace(run=run, ledger=ledger_of_stage(part(base.ledger, [stage]), stage))
        for run, stage in zip(runs, own, strict=True)
    ]
    weights = [one.parameters for one in parts]
    kept = [one.kept() + one.closures() for one in parts]
    pending = waits(parts[0]) if mesh.schedule == "zero-bubble" else 0

    def gradients(start: Instant) -> Any:
        return sum(
            size for stage, size in enumerate(weights) if stage != start.stage and (accumulate or stage in start.done)
        )

    def beside(start: Instant) -> int:
        flying = sum(count * size for count, size in zip(start.flying, kept, strict=True))
        return int(flying + start.waiting * pending + gradients(start))

    most: dict[tuple[int, bool], Instant] = {}
    for start in sorted(starts, key=beside):
        most[start.stage, accumulate or start.stage in start.done] = start
    for stage in range(len(own)):  # with gradients of earlier microbatches there is more, where as many are in flight
        first, later = most.get((stage, False)), most.get((stage, True))
        if first and later and beside(later) >= beside(first):
            del most[stage, False]
    for (stage, earlier), start in most.items():
        passes = tuple(zip(runs, start.flying, strict=True))
        others = sum(weights) - weights[stage]
        flight = InFlight(passes, own[stage].blocks.start, start.waiting * pending, others, gradients(start), rank)
        yield parts[stage]._replace(stage=flight, accumulate=earlier)


def facts(mesh: Mesh, work: Workload, step: Step) -> dict[str, Any]:
    """Stage, microbatches and what is in flight, as in the JSON."""
    assert step.stage is not None
    times = microbatches(mesh, work.axes(), train=True)
    return {
        "stage": step.stage.rank + 1,
        "in_flight": sum(count for _, count in step.stage.passes),
        **pipes.waits_facts(mesh, times, train=True),
    }


def notes(subject: LoadedModel, mesh: Mesh, work: Workload, step: Step) -> list[str]:
    """What is said of a stage's step."""
    assert step.stage is not None
    times = microbatches(mesh, work.axes(), train=True)
    flying = sum(count for _, count in step.stage.passes)
    whose = f", each of one of {mesh.chunks:,} stages" if mesh.chunks > 1 else ""
    waiting = " What gradients of weights wait with is counted too." if step.stage.waiting else ""
    return [
        f"{pipes.division(subject.ledger, mesh)} Shown is rank {step.stage.rank + 1:,}, the fullest, with what it keeps"
        f" of {flying:,} microbatch{'' if flying == 1 else 'es'} in flight{whose}.{waiting} What stages receive into"
        " and what waits to be sent is not counted.",
        pipes.waits(mesh, times),
    ]
