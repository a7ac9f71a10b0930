"""One rank's training step in a parallel layout: memory and collectives.

A tensor is whole on every rank, or sharded: along heads, MLP width and vocabulary (`tp`), tokens (`sp`, `cp`), experts
(`ep`); by rows, and gathered while its layer runs (`fsdp`); or it is in another pipeline stage (`pp`). The model of a
rank has smaller axes (`parallel.shard_model`), so its ledger and graph already include most of this. `shard_graph`
applies what axes do not express, `shards_of` counts what FSDP and ZeRO shard, and `stage_steps` returns the steps of
pipeline stages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.einsum import Axes, Size, axis_names, renamed, rounded_up
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import ACTIVE
from tfacct.ledger.storage import Width, width
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.collectives import Collective
from tfacct.parallel.data_parallel import as_fsdp, buckets
from tfacct.parallel.lora import of_adapters, of_copies, of_frozen, of_units
from tfacct.parallel.mesh import VOCABULARY, Mesh, axis_size, tp_axis
from tfacct.parallel.model_collectives import model_collectives, stage_collectives
from tfacct.parallel.pipeline import Stage, blocks_in, distinct_stages, microbatches, part, repeated, stages, within
from tfacct.parallel.shard_shapes import sharded_parameters, shards
from tfacct.parallel.support import check_sizes
from tfacct.training.lora import adapted, targets_of
from tfacct.training.model_step import graph_of, stored, training_step
from tfacct.training.phases import trained
from tfacct.training.recipe import Recipe
from tfacct.training.saved_tensors import of_experts
from tfacct.training.states import optimizer_memory
from tfacct.training.step import (
    EMBED,
    LAYER_INPUT,
    LOSS,
    ROTARY,
    BackwardOp,
    LayerGraph,
    LayerGroup,
    LayerShards,
    PipelineStage,
    SavedTensor,
    StepGraph,
    TrainingStep,
    Transient,
    WeightShards,
)
from tfacct.training.unsupported import model_of_rank, recipe_of_rank

TOKENS_HERE, SENT_ROWS, RECEIVED_ROWS = "Tsp", "Rout", "Rin"
"""Tokens of the residual stream on one `sp` rank. Token rows that an `ep` rank sends to experts, and those
that its own experts receive."""
WHOLE, PART = Transient("B T D"), Transient(f"B {TOKENS_HERE} D")
"""The residual stream of all tokens, and of those on one `sp` rank."""
INPUTS = ("B T D", "B O D")
"""Axes of the input of a sublayer's matmuls, or of the head."""
ON_STREAM = re.compile(r"(blocks\.\*\.)?(\w*norm\.\w+|\w+\.drop|\w+_add)")
"""Operations on the residual stream: norms between sublayers, dropouts of outputs, sums."""
NORM = re.compile(r"(blocks\.\*\.)?\w*norm\.")
ROW_PARALLEL = ("o_proj.weight", "down_proj.weight")
"""Matmuls whose result is a partial sum on each rank of `tp`."""
LOSS_TENSORS = (Transient("B T", "index", 3), Transient("B T", "fp32", 2), Transient("B T", "mask"))
"""Values that the loss of a sharded vocabulary needs per token: targets of this rank, rows, sums over ranks."""
ROUNDS = 3
"""Rounds of micro-batches after which an interleaved schedule repeats itself."""


# The graph of one rank.


def shard_graph(graph: StepGraph, mesh: Mesh, axes: Axes) -> StepGraph:
    """The graph of one rank: `graph` is that of the rank's model, `axes` are the sizes of its micro-batch."""
    if mesh.tp > 1 and any(tp_axis(axis) == VOCABULARY for axis in axis_names(graph.logits.axes)):
        graph = graph._replace(after=graph.after._replace(graph=_vocabulary_parallel(graph.after.graph)))

    def change(group: LayerGroup) -> LayerGroup:
        layer, sizes = group.graph, dict(group.axes)
        if mesh.ep > 1 and ACTIVE in sizes:
            rows = rounded_up(axes["B"] * axes["T"], mesh.tp) * sizes[ACTIVE]
            sizes |= {SENT_ROWS: rows, RECEIVED_ROWS: ceil(rows * mesh.imbalance)}
            layer = _expert_parallel(layer)
        if mesh.ulysses > 1 or (mesh.cp > 1 and mesh.cp_method == "ring" and sizes.get("N", 1) > 1):
            layer = layer._replace(saved=tuple(each for one in layer.saved for each in _copied_attention(one)))
        if mesh.sp:
            sizes[TOKENS_HERE] = axes["T"] // mesh.tp
            layer = _sequence_parallel(layer, mesh, many=axes["B"] != 1)
        return group._replace(graph=layer, axes=sizes)

    graph = graph._replace(
        before=change(graph.before), layers=tuple(map(change, graph.layers)), after=change(graph.after)
    )
    if mesh.sp:  # positions of all tokens, because a shard of the tokens does not know its offset
        positions = SavedTensor("positions", "T", (), "index")
        graph = graph._replace(buffers=(*graph.buffers, positions), residual=PART.axes)
    return graph


def _vocabulary_parallel(graph: LayerGraph) -> LayerGraph:
    """The loss of a sharded vocabulary (torch's loss_parallel). Its gradient is a sum, alive together with both
    terms."""

    def with_terms(each: BackwardOp) -> BackwardOp:
        if each.at != LOSS:
            return each
        terms = (
            Transient(one.axes, "fp32", one.times + 1) if axis_names(one.axes)[-1] == VOCABULARY else one
            for one in each.temporary
        )
        return each._replace(temporary=(*terms, *LOSS_TENSORS))

    return graph._replace(backward=tuple(with_terms(each) for each in graph.backward))


def _expert_parallel(graph: LayerGraph) -> LayerGraph:
    """Experts run on received rows; the sending rank applies the routing weights to their outputs."""

    def rows(axes: str, operations: Iterable[str]) -> str:
        names = axes.split()
        if ACTIVE not in names or not all(map(of_experts, operations)):
            return axes
        here = SENT_ROWS if any(name.endswith("weighting") for name in operations) else RECEIVED_ROWS
        return " ".join([here, *(axis for axis in names if axis not in ("B", "T", ACTIVE))])

    return graph.mapped(rows)


def _copied_attention(one: SavedTensor) -> Iterator[SavedTensor]:
    """A tensor of attention. Its result is sent to other ranks or concatenated from halves of a sequence, so o_proj
    reads a copy."""
    read = tuple(name for name in one.saved_for if name.endswith("o_proj.weight"))
    others = tuple(name for name in one.saved_for if name not in read)
    if not (read and others):
        yield one
        return
    yield one._replace(saved_for=others)
    yield one._replace(path=f"{one.path}.copy", saved_for=read)


def _sequence_parallel(graph: LayerGraph, mesh: Mesh, *, many: bool) -> LayerGraph:
    """The residual stream is sharded along its tokens: all-gathered for the matmuls of a sublayer, whose results are
    reduce-scattered. `many`: several sequences, which are concatenated from the ranks' parts."""
    experts = next((name.partition(".experts.")[0] for name in graph.order if ".experts." in name), None)
    mixture = [name for name in graph.order if experts is not None and name.startswith(f"{experts}.")]
    exchanged = mesh.ep > 1  # experts, router and shared expert run on the rank's tokens

    def part(axes: str, operations: Iterable[str]) -> str:
        on_stream = all(ON_STREAM.fullmatch(name) or (exchanged and name in mixture) for name in operations)
        return _part(axes) if on_stream and not any(tp_axis(axis) for axis in axes.split()) else axes

    scattered = {name for name in graph.order if name.endswith(ROW_PARALLEL) and name not in mixture}
    scattered |= set() if exchanged else {*mixture[-1:]}
    # The last operation of each norm: its gradient comes first.
    read = {name.rpartition(".")[0]: name for name in graph.order if NORM.match(name)}.values()
    changed, backward = graph.mapped(part), list[BackwardOp]()
    for each in changed.backward:
        temporary = each.temporary
        if each.at in read:  # the gradient of the sublayer's input is reduce-scattered
            backward.append(BackwardOp(each.at, (WHOLE, WHOLE, PART)))
        if each.at in scattered:  # the gradient of its result is all-gathered
            if many:
                backward.append(BackwardOp(each.at, (WHOLE, WHOLE, *temporary[1:])))
            temporary = (*temporary, WHOLE)
        if mesh.plan == "megatron" and each.at.endswith(".weight") and temporary and temporary[-1].axes in INPUTS:
            temporary = (*temporary, WHOLE)  # the matmul's input is gathered again
        backward.append(BackwardOp(each.at, temporary))
    saved = changed.saved
    if mesh.plan == "megatron":
        saved = tuple(each._replace(axes=_part(each.axes)) if each.axes in INPUTS else each for each in saved)
    return changed._replace(saved=saved, backward=tuple(backward))


def _part(axes: str) -> str:
    """Axes with one rank's tokens."""
    return renamed(axes, {"T": TOKENS_HERE, "O": TOKENS_HERE})


# Shards of FSDP and ZeRO.


def shards_of(step: TrainingStep, ledger: Ledger, mesh: Mesh, stored: Width, *, accumulates: bool) -> WeightShards:
    """Elements of each layer on the rank that stores most, including padding. `ledger`: that of the whole model or of
    one pipeline stage."""
    root: dict[str, int] = {}
    layers = list[LayerShards]()
    for group, lines in zip(step.graph.groups, _ledger_groups(step.graph, ledger), strict=True):
        shards_here = shards(lines, mesh)
        if not group.numbers:
            root |= {path: one.elements for path, one in shards_here.items()}
            layers.append(LayerShards())
            continue
        expert_paths = (one.path for one in lines.cached_lines.parameters if one.is_expert and mesh.ep > 1)
        experts = sum(shards_here[path].elements for path in expert_paths)
        adapters = (one for one in step.adapters if group.numbers[0] in one.numbers)
        of_adapters = sum(one.bytes_each * one.shard(mesh.weight_shards).elements for one in adapters)
        layers.append(LayerShards(sum(one.elements for one in shards_here.values()) - experts, experts, of_adapters))
    whole = tuple(layers), sum(root.values())
    return WeightShards(
        mesh.weight_shards, mesh.expert_shards, stored, *whole, mesh.zero == 0, accumulates, replicated=mesh.dp > 1
    )


def other_rows(step: TrainingStep, ledger: Ledger, mesh: Mesh) -> Size:
    """Bytes of the embedding's rows on other ranks of `tp`: torch's embedding computes the gradient of all rows on
    each. `ledger`: that of the whole model."""
    rows_trained = sum(
        elements
        for group in step.ledger.groups
        for operation, parameter, elements in trained(group)
        if operation == EMBED and parameter == f"{EMBED}.weight"
    )
    rows = next((group.axes[VOCABULARY] for group in ledger.groups if VOCABULARY in group.axes), 0)
    here = max(1, rounded_up(rows, mesh.tp))
    return step.stored.bytes(rows_trained) * (rows - here) // here


def _ledger_groups(graph: StepGraph, ledger: Ledger) -> Iterator[Group]:
    """The ledger's group for each group of a graph, which can split the layers of one kind."""
    groups = iter(ledger.groups)
    lines = next(groups)
    for group in graph.groups:
        yield lines
        if not group.numbers or group.numbers[-1] == lines.numbers[-1]:
            lines = next(groups, lines)


# Pipeline stages.


class InFlight(NamedTuple):
    """The start of a backward pass on a rank: the running stage, the micro-batches in flight in each stage (including
    the running one), the micro-batches whose weight gradients are not computed yet, and the stages that have
    gradients."""

    stage: int
    counts: tuple[int, ...]
    waiting: int
    done: frozenset[int]


def in_flight(mesh: Mesh, rank: int, times: int) -> list[InFlight]:
    """Backward passes of one rank over `times` micro-batches, including the one with the most bytes.

    GPipe: Huang et al. (arXiv 1811.06965). 1F1B and interleaved: Narayanan et al. (2104.04473), section 2.2. Zero
    bubble: Qi et al. (2401.10241), ZB-H1. The orders are those of torch.distributed.pipelining.
    """
    if mesh.chunks > 1:
        return list(dict.fromkeys(_interleaved(mesh, rank, times)))
    ahead = times if mesh.schedule == "gpipe" else min(mesh.pp - rank, times)
    found = []
    for number in range(min(times, mesh.pp + 1)):
        waiting = min(number, rank) if mesh.schedule == "zero-bubble" else 0
        done = frozenset((0,)) if number else frozenset[int]()
        found.append(InFlight(0, (min(ahead, times - number),), waiting, done))
    return found


def _interleaved(mesh: Mesh, rank: int, times: int) -> Iterator[InFlight]:
    rounds = max(1, times // mesh.pp)
    each = times // rounds
    passes = min(rounds, ROUNDS) * each * mesh.chunks
    ahead = min((mesh.chunks - 1) * each + 2 * (mesh.pp - 1 - rank), passes)
    counts, done, forward = [0] * mesh.chunks, frozenset[int](), 0
    for backward in range(passes):
        while forward < min(passes, ahead + backward + 1):
            counts[forward // each % mesh.chunks] += 1
            forward += 1
        stage = mesh.chunks - 1 - backward // each % mesh.chunks
        yield InFlight(stage, tuple(counts), 0, done)
        counts[stage] -= 1
        done |= {stage}


def stage_of(step: TrainingStep, stage: Stage) -> TrainingStep:
    """The step of one stage: its layers, with cos and sin before them; the embedding is only in the first stage, head
    and loss only in the last."""
    graph = step.graph
    rotary = tuple(each for each in graph.before.graph.saved if ROTARY in each.saved_for)
    for_layers = graph.before._replace(graph=LayerGraph((ROTARY,) if rotary else (), rotary))
    before = graph.before if stage.first else for_layers
    after = graph.after if stage.last else graph.after._replace(graph=LayerGraph())
    layers = ((group, within(group.numbers, stage)) for group in graph.layers)
    layers_here = tuple(group._replace(numbers=here, count=len(here)) for group, here in layers if here)
    buffers = (each for each in graph.buffers if stage.first or not each.path.startswith("embed."))
    adapters = (each._replace(numbers=within(each.numbers, stage)) for each in step.adapters)
    return step._replace(
        graph=graph._replace(before=before, layers=layers_here, after=after, buffers=tuple(buffers)),
        ledger=stage_ledger(step.ledger, stage),
        adapters=tuple(each for each in adapters if each.numbers),
        keeps_logits=stage.last,
    )


def stage_ledger(ledger: Ledger, stage: Stage) -> Ledger:
    """The lines of one stage; groups before and after its layers are empty if another stage has them."""
    first, *layers, last = ledger.groups
    groups = [first if stage.first else replace(first, lines=())]
    layers_here = ((group, within(group.numbers, stage)) for group in layers)
    groups += [replace(group, numbers=here, count=len(here)) for group, here in layers_here if here]
    groups += [last if stage.last else replace(last, lines=())]
    return Ledger(tuple(groups))


def stage_steps(
    step: TrainingStep, mesh: Mesh, times: int, finish: Callable[[TrainingStep, Sequence[Stage]], TrainingStep]
) -> Iterator[TrainingStep]:
    """Steps of ranks, including the one with the highest peak. `step`: that of all stages and one micro-batch. `finish`
    adds optimizer state and shards to the step of a rank's stages, whose layers are all in its ledger."""
    every = stages(blocks_in(step.ledger), mesh)
    for alike in distinct_stages(step.ledger, every).values():
        # Earlier ranks have more micro-batches in flight, later ones more delayed weight gradients.
        for rank in {alike[0], alike[-1]} if mesh.schedule == "zero-bubble" else alike[:1]:
            yield from _rank_steps(step, mesh, rank, every[rank], times, finish)


def _rank_steps(
    step: TrainingStep,
    mesh: Mesh,
    rank: int,
    rank_stages: Sequence[Stage],
    times: int,
    finish: Callable[[TrainingStep, Sequence[Stage]], TrainingStep],
) -> Iterator[TrainingStep]:
    parts = [finish(stage_of(step, stage), rank_stages) for stage in rank_stages]
    saved = [part.saved_bytes() + part.argument_bytes for part in parts]
    weights = [part.stage_parameters for part in parts]
    passed = [_passed_on(part, stage) for part, stage in zip(parts, rank_stages, strict=True)]
    buffers = sum(_received(part, stage, times) for part, stage in zip(parts, rank_stages, strict=True))
    pending = _waits(parts[0]) if mesh.schedule == "zero-bubble" else 0
    found: dict[tuple[int, bool], tuple[tuple[Size, ...], TrainingStep]] = {}
    for start in in_flight(mesh, rank, times):
        runs, later = start.stage, step.accumulates or start.stage in start.done
        others = [nth for nth in range(len(rank_stages)) if nth != runs]
        flying = sum(count * size for count, size in zip(start.counts, saved, strict=True))
        given = sum(count * size for count, size in zip(start.counts, passed, strict=True))
        given -= parts[runs].logits_bytes if rank_stages[runs].last else 0  # the running one counts its own
        if mesh.schedule == "1f1b" and start.done and not rank_stages[0].first:
            given += parts[runs].residual_bytes  # a variable of torch's loop keeps the last result until the next one
        flight = PipelineStage(
            rank=rank,
            in_flight=sum(start.counts),
            saved=flying - saved[runs] + start.waiting * pending,
            weights=sum(weights[nth] for nth in others),
            gradients=sum(weights[nth] for nth in others if step.accumulates or nth in start.done),
            buffers=buffers,
            passed_on=given,
            receives=not rank_stages[runs].last,
        )
        one = parts[runs]._replace(stage=flight, accumulates=later)
        size = flight.saved + flight.gradients + flight.passed_on, *start.counts
        if (runs, later) not in found or size > found[runs, later][0]:
            found[runs, later] = size, one
    yield from (one for _, one in found.values())


def _received(step: TrainingStep, stage: Stage, times: int) -> Size:
    """Bytes that a stage always has: receive buffers for every micro-batch, and the whole batch."""
    size = step.batch_bytes if stage.first or stage.last else 0
    if not stage.first:
        size += step.residual_bytes
    if not stage.last:
        size += step.residual_bytes
    return times * size


def _passed_on(step: TrainingStep, stage: Stage) -> Size:
    """Bytes that a stage passed on for a micro-batch in flight, minus what it saves of its input."""
    made = step.logits_bytes if stage.last else step.residual_bytes
    if stage.first:
        return made - step.batch_bytes
    first = (group for group in step.graph.layers if stage.blocks.start in group.numbers)
    reads = any(each.path == LAYER_INPUT for group in first for each in step.saved_in(group))
    return made - (step.residual_bytes if reads else 0)


def _waits(step: TrainingStep) -> Size:
    """Bytes needed for the delayed weight gradients of one micro-batch: inputs of the matmuls, and gradients of their
    outputs."""
    found: Size = 0
    for group in step.graph.groups:
        weights = {each.at for each in group.graph.backward if each.at.endswith(".weight")}
        read = (each for each in group.graph.saved if weights.intersection(each.saved_for))
        made = (Transient(each.temporary[0].axes) for each in group.graph.backward if each.at in weights)
        sizes = step.bytes_in(group)
        found += group.count * (sizes.of(read) + sizes.of(made))
    return found


def steps_of_ranks(model: LoadedModel, work: Workload, recipe: Recipe) -> list[TrainingStep]:
    """The step of a rank, or steps of pipeline ranks that include the one with the highest peak."""
    mesh = recipe.layout
    one, times = model_of_rank(model, mesh), microbatches(mesh, work.axes(), train=True)
    step = rank_step(one, replace(work, batch=work.batch // times) if mesh.pp > 1 else work, recipe)
    return [*sharded_steps(model, one, step, recipe, times)]


def sequences_of_rank(model: LoadedModel, mesh: Mesh, work: Workload) -> Workload:
    """The part of each sequence that one rank has. Raises UsageError for tokens that ranks do not divide."""
    if mesh.sp and work.tokens % mesh.tp:
        raise UsageError(
            f"{option('tp', mesh.tp)} does not divide {axis_size('T', work.tokens)}",
            f"{option('sp', True)} shards the tokens: use a multiple of {mesh.tp}",
        )
    if mesh.sequence_shards == 1:
        return work
    check_sizes(model, mesh, work.axes())
    return replace(work, tokens=work.tokens // mesh.sequence_shards, context=work.context // mesh.sequence_shards)


def rank_step(
    one: LoadedModel,
    work: Workload,
    recipe: Recipe,
    graph: Callable[[LoadedModel, Workload, Recipe], StepGraph] = graph_of,
) -> TrainingStep:
    """The step of a rank of `tp`, `ep` and `cp`: that of its model, on its part of the sequences."""
    rank_recipe = recipe_of_rank(recipe).for_model(one)
    work = rank_recipe.runs(work)
    return training_step(one, work, rank_recipe, shard_graph(graph(one, work, rank_recipe), recipe.layout, work.axes()))


def sharded_steps(
    model: LoadedModel, one: LoadedModel, step: TrainingStep, recipe: Recipe, times: int
) -> Iterator[TrainingStep]:
    """The step of a rank with sharded weights and states; in a pipeline, steps of ranks that run `times` micro-batches,
    from the `step` of all stages and one micro-batch. `one`: the model of a rank of `tp` and `ep`."""
    mesh = recipe.layout
    if mesh.pp == 1:
        yield with_shards(model, step, recipe)
        return
    # Under FSDP, gradients of earlier micro-batches are shards.
    step = step._replace(accumulates=recipe.accumulates and mesh.fsdp == 1)
    yield from stage_steps(step, mesh, times, lambda part, stages: with_shards(model, part, recipe, one, stages))


def with_shards(
    model: LoadedModel, step: TrainingStep, recipe: Recipe, one: LoadedModel | None = None, stages: Sequence[Stage] = ()
) -> TrainingStep:
    """The step with sharded weights, gradients or optimizer state, or with gradient buckets. For a pipeline rank,
    `stages` are those of the rank, and `one` is the model of a rank of `tp`."""
    mesh = recipe.layout
    ledger = part(model.ledger, stages) if stages else model.ledger
    shares = as_fsdp(mesh) if mesh.zero else mesh
    parameters: list[TorchParameter] | None = None
    if step.adapters:
        parameters = [each.shard(shares.weight_shards) for each in step.adapters]
    elif shares.weight_shards > 1:
        parameters = sharded_parameters(ledger, shares, model.class_tensors)
    elif one is not None:
        parameters = stored(one, part(one.ledger, stages))
    if parameters is not None:
        step = step._replace(optimizer=optimizer_memory(recipe, parameters))
    if mesh.tp > 1 and mesh.weight_shards == 1 and mesh.zero < 2 and not step.adapters:
        step = step._replace(other_rows=other_rows(step, model.ledger, mesh))
    if mesh.replicas > 1 and mesh.fsdp == 1 and not mesh.zero:
        sizes = [step.adapter_bytes] if step.adapters else buckets(ledger, mesh, width(recipe.weights_format).bits, {})
        step = step._replace(buckets=sum(sizes))
    if shares.weight_shards == 1 or mesh.zero == 1:
        return step
    lines = stage_ledger(model.ledger, stages[0]) if stages else model.ledger
    found = shards_of(step, lines, shares, width(recipe.weights_format), accumulates=recipe.accumulates)
    return step._replace(shards=found, accumulates=step.accumulates and mesh.pp > 1)


def sent_bytes(model: LoadedModel, work: Workload, recipe: Recipe) -> int:
    """Bytes that one rank sends in an optimizer step."""
    return sum(each.sent for each in collectives(model, work, recipe))


def collectives(model: LoadedModel, work: Workload, recipe: Recipe) -> list[Collective]:
    """Collectives of one rank in an optimizer step; in a pipeline, of the rank that sends most. Replicas of all weights
    and gradients reduce them once, sharded layouts once per micro-batch."""
    whole = recipe.layout.fsdp == 1 and recipe.layout.zero < 2
    return [
        each
        if each.when == "update" or (whole and each.of == "weights")
        else repeated(each, recipe.gradient_accumulation)
        for each in _of_micro_batch(model, work, recipe)
    ]


def _of_micro_batch(model: LoadedModel, work: Workload, recipe: Recipe) -> list[Collective]:
    mesh, bits = recipe.layout, units.dtype_bits(recipe.dtype)
    if recipe.lora is None:
        return model_collectives(model, mesh, work.axes(), bits, train=True, recomputed=recipe.recomputed_sends)
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
    """Collectives of a step that trains adapters on frozen weights, over `times` micro-batches; `found`: those without
    adapters."""
    mesh, graph = recipe.layout, step.graph
    targets, bits = targets_of(recipe), units.dtype_bits(recipe.adapter_dtype)
    live = [(group.count, {each.at for each in group.graph.backward}) for group in (*graph.layers, graph.after)]
    ledger = model.ledger if step.stage is None else step.ledger
    of_lora: Iterable[Collective] = ()
    if mesh.tp > 1:
        of_lora = of_adapters(ledger, mesh, adapted(model, targets), targets.rank, step.axes, bits)
    if step.shards is None:
        copies = of_copies(((one.bytes, one.numbers) for one in step.adapters), mesh)
    else:
        sharded = zip(graph.layers, step.shards.layers[1:-1], strict=True)
        layers = [(group.count, step.shards.stored.bytes(one.elements), one.adapters) for group, one in sharded]
        copies = of_units(layers, step.shards.stored.bytes(step.shards.root), mesh, staged=step.stage is not None)
    return [*of_frozen(found, live), *(repeated(one, times) for one in of_lora), *copies]
