"""Batch sizes of a training step: micro-batch, global batch, and the micro-batches of an optimizer step."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload, check_size
from tfacct.parallel.mesh import Mesh, checked
from tfacct.parallel.pipeline import microbatches
from tfacct.training.recipe import Recipe


class BatchSizes(NamedTuple):
    """Sequences of a forward pass on a data-parallel rank, of all micro-batches in a pipeline; micro-batches of an
    optimizer step, outside a pipeline; and the layout, with the micro-batches of its pipeline."""

    batch: int
    gradient_accumulation: int
    mesh: Mesh | None


def batch_sizes(
    batch: int | None,
    micro: int | None,
    steps: int | None,
    whole: int | None,
    mesh: Mesh | None,
) -> BatchSizes:
    """Sizes that follow from those that are given: global batch = micro-batch · steps · data-parallel ranks. A
    micro-batch is one sequence unless it follows from the others. A pipeline takes the micro-batches of a step one
    after another. Raises UsageError for sizes that do not divide."""
    given = {"micro_batch_size": micro, "gradient_accumulation": steps, "global_batch_size": whole}
    for name, size in given.items():
        if size is not None:
            check_size(option(name), size)
    mesh = None if mesh is None else checked(mesh)
    ranks, stages = (1, 1) if mesh is None else (mesh.fsdp * mesh.dp, mesh.pp)
    if micro is not None and batch is not None:
        raise UsageError(
            f"{option('micro_batch_size', micro)} and {option('batch', batch)} are the same size: give one"
        )
    micro = batch if micro is None else micro
    if whole is not None:
        if stages > 1 and batch is not None:
            raise UsageError(f"{option('batch')} is the whole batch of a pipeline: give {option('micro_batch_size')}")
        steps, micro = _divided(whole, micro, steps, ranks)
    micro, steps = micro or 1, steps or 1
    if stages == 1 or mesh is None or (whole is None and given["micro_batch_size"] is None):
        return BatchSizes(micro, steps, mesh)
    if mesh.microbatches not in (0, steps):
        raise UsageError(
            f"{option('microbatches', mesh.microbatches)} is not the {steps:,} micro-batches of an optimizer step",
            f"leave {option('microbatches')} out",
        )
    return BatchSizes(micro * steps, 1, replace(mesh, microbatches=steps))


def _divided(whole: int, micro: int | None, steps: int | None, ranks: int) -> tuple[int, int]:
    """Micro-batches of an optimizer step, and their size."""
    each, left = divmod(whole, ranks)
    of = f"{option('global_batch_size', whole)} does not divide into"
    if left:
        raise UsageError(f"{of} {ranks:,} data-parallel ranks", f"give a multiple of {ranks:,}")
    if steps is None:
        micro = micro or 1
        if each % micro:
            raise UsageError(f"{of} micro-batches of {micro:,} on {ranks:,} data-parallel ranks")
        return each // micro, micro
    if micro is None:
        if each % steps:
            raise UsageError(f"{of} {steps:,} micro-batches on {ranks:,} data-parallel ranks")
        return steps, each // steps
    if each != micro * steps:
        raise UsageError(
            f"{option('global_batch_size', whole)} is not {micro * steps * ranks:,}: micro-batches of {micro:,},"
            f" {steps:,} of them, on {ranks:,} data-parallel ranks",
            f"leave {option('gradient_accumulation')} out",
        )
    return steps, micro


def size_facts(work: Workload, recipe: Recipe) -> dict[str, int]:
    """The batch sizes of a step, as in the JSON."""
    mesh, steps = recipe.mesh, recipe.gradient_accumulation
    ranks = 1 if mesh is None else mesh.fsdp * mesh.dp
    if mesh is not None and mesh.pp > 1:
        steps *= microbatches(mesh, work.axes(), train=True)
    in_pipeline = steps // recipe.gradient_accumulation
    return {
        "micro_batch_size": work.batch // in_pipeline,
        "gradient_accumulation": steps,
        "global_batch_size": work.batch * recipe.gradient_accumulation * ranks,
    }
