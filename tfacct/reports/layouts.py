"""A training step as one rank of a parallel layout takes it, and layouts that are not supported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tfacct.architecture.parts import Attention, Embedding, Experts, LatentAttention
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.storage import width
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.lora import of_adapters, of_copies, of_frozen, of_units
from tfacct.parallel.mesh import VOCABULARY, Mesh, padded, replicated
from tfacct.parallel.pipeline import repeated
from tfacct.parallel.replicas import along_copies, buckets
from tfacct.parallel.sends import Collective
from tfacct.parallel.shards import sharded_parameters
from tfacct.parallel.stages import Stage, microbatches, part
from tfacct.reports import mesh as meshes
from tfacct.reports import pipes, training
from tfacct.reports.lora import SMALL_VOCABULARY
from tfacct.reports.one_rank import on_ranks
from tfacct.reports.unruled import encodes, in_parallel
from tfacct.reports.unruled import unruled as part_without_rule
from tfacct.training.adapters import adapted, lora_targets, parameter_words
from tfacct.training.memory import TrainingMemory, graph_of, training_step
from tfacct.training.optimizers import optimizer
from tfacct.training.parameters import stored
from tfacct.training.ranks import adapter_shards, other_rows, shard_graph, shards_of, stage_ledger, stage_steps
from tfacct.training.recipe import FP32, NF4, Recipe
from tfacct.training.states import optimizer_memory
from tfacct.training.step import TrainingStep
from tfacct.training.traits import mode_of, traits_of

# Layouts that are not supported.


class Unsupported(NamedTuple):
    """Features that do not work together, and what to do instead. `{cp}` stands for the option."""

    features: str
    what: str
    instead: str


UNSUPPORTED = (
    Unsupported("encoder cp", "an encoder with {cp}", "leave {cp} out"),
    Unsupported("encoder ulysses", "an encoder with {ulysses}", "leave {ulysses} out"),
    Unsupported("encoder pp other_axes", "an encoder with {pp} and another axis", "leave {pp} or the others out"),
    Unsupported("encoder_decoder zero2", "an encoder–decoder with {zero=2}", "leave {zero} out"),
    Unsupported(
        "encoder_decoder fsdp fp32_weights",
        "an encoder–decoder with {fsdp} and {weights_dtype=fp32}",
        "leave {weights_dtype} out",
    ),
    Unsupported("encoder lora other_axes", "LoRA on an encoder in a parallel layout", "leave {lora} or the layout out"),
    Unsupported("parallel_sublayers lora", "LoRA on parallel sublayers in a parallel layout", "leave {lora} out"),
    Unsupported("parallel_sublayers computes", "parallel sublayers in this layout", "use {fsdp}"),
    Unsupported("odd_attention lora", "LoRA on attention with ALiBi, sinks or gates in a layout", "leave {lora} out"),
    Unsupported("odd_attention computes", "attention with ALiBi, sinks or gates in this layout", "use {fsdp}"),
    Unsupported("lora uneven", "LoRA with a {tp} that does not divide all heads and widths", "choose another {tp}"),
    Unsupported("sp ep shared_expert", "{ep} with {sp=True} and a shared expert", "leave {ep} out"),
    Unsupported("ep expert_bias", "{ep} of experts with biases", "leave {ep} out"),
    Unsupported("ep recompute_part", "{ep} with {recompute=attention}", "use {recompute=full}"),
    Unsupported("lora experts", "LoRA with experts in a parallel layout", "leave {lora} or the layout out"),
    Unsupported("lora mla", "LoRA on latent attention in a parallel layout", "leave {lora} or the layout out"),
    Unsupported("lora tp norm_over_heads", "LoRA with {tp} and a norm over all heads", "leave {tp} out"),
    *(
        Unsupported(f"lora {axis}", f"LoRA with {name}", "use {tp}, {fsdp}, {dp} or {pp}")
        for axis, name in {
            "cp": "{cp}",
            "ulysses": "{ulysses}",
            "ep": "{ep}",
            "zero": "{zero}",
            "sp": "{sp=True}",
            "megatron": "{tp_plan=megatron}",
        }.items()
    ),
    Unsupported("lora pp dp", "LoRA with {pp} and {dp}", "leave {dp} out"),
    Unsupported("lora pp tp fsdp", "LoRA with {pp}, {tp} and {fsdp}", "leave one of them out"),
    Unsupported("lora pp other_schedule", "LoRA with this {schedule}", "use {schedule=1f1b}"),
    Unsupported("lora fsdp fp32_weights", "LoRA with {fsdp} and {weights_dtype=fp32}", "leave {weights_dtype} out"),
    Unsupported("lora fsdp bare_layers", "LoRA with {fsdp} where some layers have no adapter", "leave {fsdp} out"),
    Unsupported("lora pp bare_layers", "LoRA with {pp} where some layers have no adapter", "leave {pp} out"),
    Unsupported("lora nf4", "LoRA with {weights_dtype=nf4} in a parallel layout", "leave {weights_dtype} out"),
    Unsupported("lora narrow", "LoRA with a vocabulary below twice the hidden size on a rank", "use a smaller {tp}"),
    Unsupported("autocast", "autocast in a parallel layout without {fsdp}", "leave {weights_dtype} out"),
    Unsupported("packing computes", "{packing=True} with more than {fsdp} and {dp}", "leave {packing} out"),
    Unsupported("offload_activations pp", "{offload=activations} with {pp}", "leave one of them out"),
    Unsupported("eager cp", "{attention=eager} with {cp}", "use {attention=sdpa}"),
    Unsupported("eager ulysses", "{attention=eager} with {ulysses}", "use {attention=sdpa}"),
    Unsupported("eager sp", "{attention=eager} with {sp=True}", "use {attention=sdpa}"),
    Unsupported("whole_tensor_optimizer", "this {optimizer} in a parallel layout", "use {optimizer=adamw}"),
)


class _Options(dict[str, str]):
    """Options as a message spells them: `cp`, `attention=eager`."""

    def __missing__(self, key: str) -> str:
        name, _, value = key.partition("=")
        return option(name, True if value == "True" else value or None)


def unsupported(model: LoadedModel, recipe: Recipe) -> str | None:
    """Reason why a layout does not go with a model or a recipe; None if it does."""
    assert recipe.mesh is not None
    try:
        pipes.check_step(recipe.mesh)
        meshes.check_ruled(model, recipe.mesh)
        meshes.check_divided(model, replace(recipe.mesh, sp=False))
    except TfacctError as error:
        return error.message.removeprefix(f"{model.name}: ")
    return next((why for why, _ in _reasons(model, recipe)), None)


def refusal(model: LoadedModel, recipe: Recipe) -> str | None:
    """Reason why one rank's training step is not counted; None if it is."""
    assert recipe.mesh is not None
    return unsupported(model, recipe) or training.refusal(model_of_rank(model, recipe.mesh), alone(recipe))


def _reasons(model: LoadedModel, recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Why a step is not counted, and what to do instead."""
    mesh, options = recipe.mesh, _Options()
    assert mesh is not None
    part = part_without_rule(model.architecture) if mesh.ranks > mesh.pp else None
    weights_alone = recipe.lora is None and not _computes(mesh) and meshes.divides_weights(model, mesh)
    if part is not None and not weights_alone:
        why = training.refusal(model, alone(recipe)) or f"no rule for {part} on a mesh"
        yield why, f"`tfacct params` and `comms` count its weights under {option('fsdp')}"
    there = features(model, recipe.for_model(model))
    for row in UNSUPPORTED:
        if all(there[feature] for feature in row.features.split()):
            yield f"{row.what.format_map(options)} is not supported", row.instead.format_map(options)


def features(model: LoadedModel, recipe: Recipe) -> dict[str, bool]:
    """Features that rows of UNSUPPORTED name, and whether a layout, a recipe or a model has them."""
    mesh, rule = recipe.mesh, optimizer(recipe.optimizer)
    assert mesh is not None
    lora = recipe.lora is not None
    there: dict[str, object] = {
        **{axis: getattr(mesh, axis) > 1 for axis in ("tp", "fsdp", "dp", "pp", "cp", "ulysses", "ep")},
        "zero": mesh.zero,
        "zero2": mesh.zero > 1,
        "sp": mesh.sp,
        "megatron": mesh.plan != "torch",
        "other_axes": mesh.ranks > mesh.pp,
        "other_schedule": mesh.schedule not in ("1f1b", "gpipe"),
        "computes": _computes(mesh),
        "lora": lora,
        "nf4": recipe.weights_dtype == NF4,
        "fp32_weights": recipe.weights_dtype == FP32,
        "autocast": recipe.weights_dtype == FP32 and not recipe.in_fp32 and mesh.fsdp == 1,
        "packing": recipe.packing,
        "offload_activations": recipe.offloads("activations"),
        "eager": recipe.attention == "eager",
        "recompute_part": recipe.recompute not in ("none", "full"),
        "whole_tensor_optimizer": not rule.elementwise,
        "uneven": replicated(model.ledger, mesh) or {letter for letter, _ in padded(model.ledger, mesh)} - {VOCABULARY},
        "narrow": lora and _narrow(model, mesh.tp),
        "bare_layers": lora and _bare_layers(model, recipe),
    }
    return model.once(_features) | {name: bool(is_there) for name, is_there in there.items()}


def _features(model: LoadedModel) -> dict[str, bool]:
    """Those of the model."""
    shape = model.architecture
    experts = [part for part in shape.parts() if isinstance(part, Experts)]
    attentions = [part for part in shape.parts() if isinstance(part, Attention)]
    there: dict[str, object] = {
        "encoder": encodes(shape),
        "encoder_decoder": shape.encoder is not None,
        "parallel_sublayers": any(map(in_parallel, shape.stacks)),
        "odd_attention": any(one.alibi or one.sinks or one.gate or one.scales.queries for one in attentions),
        "norm_over_heads": meshes.gathers_heads(model),
        "mla": shape.having(LatentAttention),
        "experts": experts,
        "shared_expert": any(one.shared_width is not None for one in experts),
        "expert_bias": any(one.bias for one in experts),
    }
    return {name: bool(is_there) for name, is_there in there.items()}


def _computes(mesh: Mesh) -> bool:
    """True if ranks divide more than weights and sequences, so that each computes something else than one device."""
    return mesh.ranks != mesh.fsdp * mesh.dp or mesh.ep > 1


def _narrow(model: LoadedModel, tp: int) -> bool:
    """True if a rank's vocabulary is smaller than that of models whose LoRA steps were measured."""
    embed = model.architecture.embed
    return not (isinstance(embed, Embedding) and embed.vocab >= SMALL_VOCABULARY * embed.hidden * tp)


def _bare_layers(model: LoadedModel, recipe: Recipe) -> bool:
    """True if layers of some kind have no adapter."""
    on = adapted(model, lora_targets(recipe.lora or ""))
    kinds = (group for group in model.ledger.groups if group.numbers)
    return any(on.isdisjoint(line.path for line in group.lines) for group in kinds)


# The step of one rank.


def alone(recipe: Recipe) -> Recipe:
    """The recipe of what one rank computes: on weights that it has gathered, in the dtype of the pass."""
    return replace(recipe, mesh=None, weights_dtype=None if recipe.shards_weights else recipe.weights_dtype)


def model_of_rank(model: LoadedModel, mesh: Mesh) -> LoadedModel:
    """The model that a rank of `tp` and `ep` has."""
    return on_ranks([model.running("expanded")], mesh.tp, mesh.ep)[0]


def checked(model: LoadedModel, recipe: Recipe) -> Mesh:
    """The layout of a recipe. Raises TfacctError for one that is not supported."""
    mesh = recipe.mesh
    assert mesh is not None
    pipes.check_step(mesh)
    meshes.check_ruled(model, mesh)
    meshes.check_divided(model, replace(mesh, sp=False))
    for why, instead in _reasons(model, recipe):
        raise UsageError(f"{model.name}: {why}", "; ".join(filter(None, (parameter_words(model, recipe), instead))))
    return mesh


def memory_of_rank(model: LoadedModel, work: Workload, recipe: Recipe) -> TrainingMemory:
    """The memory of one rank's training step: of a pipeline, of the rank with the highest peak. Raises TfacctError."""
    mesh = checked(model, recipe)
    training.check_counted(model_of_rank(model, mesh), work, alone(recipe).for_model(model))
    steps = steps_of_ranks(model, sequences_of_rank(model, mesh, work), recipe)
    return max((TrainingMemory(model, work, recipe, step) for step in steps), key=lambda one: int(one.peak.total))


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
    if mesh.parts == 1:
        return work
    meshes.check_sizes(model, mesh, work.axes())
    return replace(work, tokens=work.tokens // mesh.parts, context=work.context // mesh.parts)


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
    shares = along_copies(mesh) if mesh.zero else mesh
    own_adapters = adapter_shards(step.adapters, _lora_rank(recipe), shares)
    parameters: list[TorchParameter] | None = None
    if step.adapters:
        parameters = [TorchParameter((own,), len(one.numbers), one.numbers[0]) for one, own in own_adapters]
    elif shares.sharers > 1:
        parameters = sharded_parameters(ledger, shares, model.class_tensors)
    elif one is not None:
        parameters = stored(one, part(one.ledger, stages))
    if parameters is not None:
        each = width(recipe.adapter_dtype) if step.adapters else stored_as
        memory = optimizer_memory(recipe, parameters, each.bits // 8)
        most, least = memory.update
        step = step._replace(optimizer_state=memory.state, master_weights=memory.master_weights)
        step = step._replace(update=most, uncertain=most - least)
    if mesh.tp > 1 and mesh.sharers == 1 and not (mesh.zero or step.adapters):
        step = step._replace(other_rows=other_rows(step, model.ledger, mesh))
    if mesh.replicas > 1 and mesh.fsdp == 1 and not mesh.zero:
        sizes = [step.adapter_bytes] if step.adapters else buckets(ledger, mesh, stored_as.bits, {})
        step = step._replace(buckets=sum(sizes))
    if shares.sharers == 1 or mesh.zero == 1:
        return step
    lines = stage_ledger(model.ledger, stages[0]) if stages else model.ledger
    bytes_each = width(recipe.adapter_dtype).bits // 8
    adapters = [(one, bytes_each * own) for one, own in own_adapters]
    found = shards_of(step.graph, lines, shares, stored_as, accumulates=recipe.accumulates, adapters=adapters)
    return step._replace(shards=found, accumulates=step.accumulates and mesh.pp > 1)


def _lora_rank(recipe: Recipe) -> int:
    return 1 if recipe.lora is None else lora_targets(recipe.lora).rank


# What a rank sends, and facts of its step.


def sent_bytes(one: TrainingMemory) -> int:
    """Bytes that one rank sends in a step."""
    return sum(each.sent for each in collectives(one.model, one.work, one.recipe))


def collectives(model: LoadedModel, work: Workload, recipe: Recipe) -> list[Collective]:
    """Collectives of one rank in a step; of a pipeline, of the one that sends most."""
    mesh, bits = recipe.mesh, units.dtype_bits(recipe.dtype)
    assert mesh is not None
    if recipe.lora is None:
        return meshes.calls(model, mesh, work.axes(), bits, train=True)
    every = meshes.by_stage(model, mesh, work.axes(), bits, train=True)
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


def stage_facts(one: TrainingMemory) -> dict[str, Any]:
    """The rank of a pipeline that is shown, its micro-batches, and those in flight, as in the JSON."""
    mesh, stage = one.recipe.mesh, one.step.stage
    if mesh is None or stage is None:
        return {}
    times = microbatches(mesh, one.work.axes(), train=True)
    return {"stage": stage.rank + 1, "in_flight": stage.in_flight, **pipes.waits_facts(mesh, times, train=True)}


def facts(one: TrainingMemory) -> dict[str, Any]:
    """The parallel layout of a step, what a rank sends, and the whole model, as in the JSON."""
    mesh, recipe = one.recipe.mesh, one.recipe
    assert mesh is not None
    whole = training.training_memory(one.model, one.work, alone(recipe))
    weights, state, gradients = whole.step.parameters, whole.step.optimizer_state, whole.phases[-1].gradients
    if recipe.shards_weights and recipe.weights_dtype == FP32:  # stored so, and cast when they are gathered
        tensors, each = stored(one.model), width(FP32)
        weights = gradients = each.bytes(sum(tensor.copies * tensor.elements for tensor in tensors))
        state = optimizer_memory(recipe, tensors, each.bits // 8).state
    return {
        "mesh": meshes.facts(mesh),
        "sent_bytes": sent_bytes(one),
        **stage_facts(one),
        "whole": {
            "weights_bytes": weights,
            "optimizer_bytes": state,
            "gradients_bytes": gradients,
            "saved_bytes": whole.step.saved_bytes(),
        },
    }
