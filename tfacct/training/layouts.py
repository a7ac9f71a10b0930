"""A training step as one rank of a parallel layout takes it: its memory, and the collectives that it takes part in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.storage import width
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.collectives import Collective
from tfacct.parallel.data_parallel import as_fsdp, buckets
from tfacct.parallel.lora import of_adapters, of_copies, of_frozen, of_units
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.model_collectives import model_collectives, stage_collectives
from tfacct.parallel.pipeline import Stage, microbatches, part, repeated
from tfacct.parallel.shard_shapes import sharded_parameters
from tfacct.parallel.support import check_sizes
from tfacct.training.adapters import adapted, lora_targets
from tfacct.training.model_step import graph_of, training_step
from tfacct.training.parameters import stored
from tfacct.training.ranks import adapter_shards, other_rows, shard_graph, shards_of, stage_ledger, stage_steps
from tfacct.training.recipe import Recipe
from tfacct.training.states import optimizer_memory
from tfacct.training.step import TrainingStep
from tfacct.training.traits import mode_of, traits_of
from tfacct.training.unsupported import alone, model_of_rank


def steps_of_ranks(model: LoadedModel, work: Workload, recipe: Recipe) -> list[TrainingStep]:
    """The step of a rank, or steps of ranks of a pipeline among which the one with the highest peak is."""
    mesh = recipe.mesh
    assert mesh is not None
    one, times = model_of_rank(model, mesh), microbatches(mesh, work.axes(), train=True)
    step = rank_step(one, replace(work, batch=work.batch // times) if mesh.pp > 1 else work, recipe)
    return [*sharded_steps(model, one, step, recipe, times)]


def sequences_of_rank(model: LoadedModel, mesh: Mesh, work: Workload) -> Workload:
    """The part of each sequence that one rank has. Raises UsageError for tokens that ranks do not divide."""
    if mesh.sp and work.tokens % mesh.tp:
        raise UsageError(
            f"{option('tp', mesh.tp)} does not divide T = {work.tokens:,} (tokens)",
            f"{option('sp', True)} divides the tokens: ask for a multiple of {mesh.tp}",
        )
    if mesh.sequence_shards == 1:
        return work
    check_sizes(model, mesh, work.axes())
    return replace(work, tokens=work.tokens // mesh.sequence_shards, context=work.context // mesh.sequence_shards)


def rank_step(one: LoadedModel, work: Workload, recipe: Recipe) -> TrainingStep:
    """What a rank of `tp`, `ep` and `cp` computes: the step of the model that it has, on its part of the sequences."""
    mesh, own = recipe.mesh, alone(recipe).for_model(one)
    assert mesh is not None
    work = own.runs(work)
    graph = graph_of(one, work, own, mode_of(one, own), traits_of(one))
    return training_step(one, work, own, shard_graph(graph, mesh, work.axes()), stored(one))


def sharded_steps(
    model: LoadedModel, one: LoadedModel, step: TrainingStep, recipe: Recipe, times: int
) -> Iterator[TrainingStep]:
    """The step of a rank with what other ranks shard; in a pipeline, of ranks that take so many micro-batches, `step`
    of all stages and one micro-batch. `one`: the model of a rank of `tp` and `ep`."""
    mesh = recipe.mesh
    assert mesh is not None
    if mesh.pp == 1:
        yield with_shards(model, step, recipe)
        return
    # Under FSDP gradients of earlier batches are shards.
    step = step._replace(accumulates=recipe.accumulates and mesh.fsdp == 1)
    yield from stage_steps(step, mesh, times, lambda part, own: with_shards(model, part, recipe, one, own))


def with_shards(
    model: LoadedModel,
    step: TrainingStep,
    recipe: Recipe,
    one: LoadedModel | None = None,
    stages: Sequence[Stage] = (),
) -> TrainingStep:
    """The step where ranks shard weights, gradients or optimizer state, or reduce gradients in buckets. Of a rank of a
    pipeline, `stages` are its own, and `one` is the model of a rank of `tp`."""
    mesh, stored_as = recipe.mesh, width(recipe.weights_dtype or recipe.dtype)
    assert mesh is not None
    ledger = part(model.ledger, stages) if stages else model.ledger
    shares = as_fsdp(mesh) if mesh.zero else mesh
    own_adapters = adapter_shards(step.adapters, _lora_rank(recipe), shares)
    parameters: list[TorchParameter] | None = None
    if step.adapters:
        parameters = [TorchParameter((own,), len(one.numbers), one.numbers[0]) for one, own in own_adapters]
    elif shares.weight_shards > 1:
        parameters = sharded_parameters(ledger, shares, model.class_tensors)
    elif one is not None:
        parameters = stored(one, part(one.ledger, stages))
    if parameters is not None:
        each = width(recipe.adapter_dtype) if step.adapters else stored_as
        memory = optimizer_memory(recipe, parameters, each.bits // 8)
        most, least = memory.update
        step = step._replace(optimizer_state=memory.state, master_weights=memory.master_weights)
        step = step._replace(update=most, uncertain=most - least)
    if mesh.tp > 1 and mesh.weight_shards == 1 and not (mesh.zero or step.adapters):
        step = step._replace(other_rows=other_rows(step, model.ledger, mesh))
    if mesh.replicas > 1 and mesh.fsdp == 1 and not mesh.zero:
        sizes = [step.adapter_bytes] if step.adapters else buckets(ledger, mesh, stored_as.bits, {})
        step = step._replace(buckets=sum(sizes))
    if shares.weight_shards == 1 or mesh.zero == 1:
        return step
    lines = stage_ledger(model.ledger, stages[0]) if stages else model.ledger
    bytes_each = width(recipe.adapter_dtype).bits // 8
    adapters = [(one, bytes_each * own) for one, own in own_adapters]
    found = shards_of(step.graph, lines, shares, stored_as, accumulates=recipe.accumulates, adapters=adapters)
    return step._replace(shards=found, accumulates=step.accumulates and mesh.pp > 1)


def _lora_rank(recipe: Recipe) -> int:
    return 1 if recipe.lora is None else lora_targets(recipe.lora).rank


def sent_bytes(model: LoadedModel, work: Workload, recipe: Recipe) -> int:
    """Bytes that one rank sends in a step."""
    return sum(each.sent for each in collectives(model, work, recipe))


def collectives(model: LoadedModel, work: Workload, recipe: Recipe) -> list[Collective]:
    """Collectives of one rank in a step; of a pipeline, of the one that sends most."""
    mesh, bits = recipe.mesh, units.dtype_bits(recipe.dtype)
    assert mesh is not None
    if recipe.lora is None:
        return model_collectives(model, mesh, work.axes(), bits, train=True)
    every = stage_collectives(model, mesh, work.axes(), bits, train=True)
    times = microbatches(mesh, work.axes(), train=True) if mesh.pp > 1 else 1
    found = (
        lora_collectives(model, recipe, step, every[0 if step.stage is None else step.stage.rank], times)
        for step in steps_of_ranks(model, sequences_of_rank(model, mesh, work), recipe)
    )
    return max(found, key=lambda lines: sum(one.sent for one in lines))


def lora_collectives(
    model: LoadedModel, recipe: Recipe, step: TrainingStep, found: list[Collective], times: int = 1
) -> list[Collective]:
    """Collectives of a step that trains adapters on frozen weights, of `times` micro-batches; `found`: without them."""
    mesh, graph = recipe.mesh, step.graph
    assert mesh is not None and recipe.lora is not None
    targets, bits = lora_targets(recipe.lora), units.dtype_bits(recipe.adapter_dtype)
    live = [(group.count, {each.at for each in group.graph.backward}) for group in (*graph.layers, graph.after)]
    ledger = model.ledger if step.stage is None else step.ledger
    of_lora: Iterable[Collective] = ()
    if mesh.tp > 1:
        of_lora = of_adapters(ledger, mesh, adapted(model, targets), targets.rank, step.axes, bits)
    if step.shards is None:
        copies = of_copies(((one.bytes, one.numbers) for one in step.adapters), mesh)
    else:
        own = zip(graph.layers, step.shards.layers[1:-1], strict=True)
        layers = [(group.count, step.shards.stored.bytes(one.elements), one.adapters) for group, one in own]
        copies = of_units(layers, step.shards.stored.bytes(step.shards.root), mesh, staged=step.stage is not None)
    return [*of_frozen(found, live), *(repeated(one, times) for one in of_lora), *copies]
