"""The training step of a pipeline's fullest rank: the microbatch that runs, and those in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tfacct.accounts.sharding.flights import Instant, instants, ledger_of_stage, pass_of_stage, waits
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.stages import Stage, blocks_in, microbatches, part, sorts, stages
from tfacct.accounts.timeline import peak, timeline
from tfacct.accounts.training import InFlight, Step
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports import pipes

Make = Callable[[list[Stage], bool], Step]
"""The step of a rank with some stages, all blocks in its pass; with gradients of earlier microbatches or without."""


def fullest(subject: LoadedModel, mesh: Mesh, work: Workload, accumulate: bool, make: Make) -> Step:
    """The step of the rank whose peak is the highest. Raises TfacctError."""
    times = microbatches(mesh, work.axes(), train=True)
    every = stages(blocks_in(subject.ledger), mesh)
    found: list[Step] = []
    for alike in sorts(subject.ledger, every).values():
        # Earlier ranks have more in flight, later ones more that waits.
        ends = {alike[0], alike[-1]} if mesh.schedule == "zero-bubble" else alike[:1]
        for rank in ends:
            found += _steps(mesh, rank, every[rank], times, accumulate, make)
    return max(found, key=lambda step: int(peak(timeline(step)).total))


def _steps(mesh: Mesh, rank: int, own: list[Stage], times: int, accumulate: bool, make: Make) -> Iterator[Step]:
    """Steps of one rank among which its fullest is: the most beside each stage, first and later microbatches apart."""
    starts = instants(mesh, rank, times)
    bases = {earlier: make(own, earlier) for earlier in {accumulate or start.stage in start.done for start in starts}}
    base = next(iter(bases.values()))
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
    for (stage, earlier), start in most.items():
        passes = tuple(zip(runs, start.flying, strict=True))
        others = sum(weights) - weights[stage]
        flight = InFlight(passes, own[stage].blocks.start, start.waiting * pending, others, gradients(start), rank)
        yield bases[earlier]._replace(run=runs[stage], ledger=parts[stage].ledger, stage=flight)


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
