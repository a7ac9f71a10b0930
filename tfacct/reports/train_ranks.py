"""A training step as one rank of a mesh takes it: which are counted, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tfacct.accounts.sharding.experts import received
from tfacct.accounts.sharding.mesh import LIVES, VOCABULARY, Mesh, divisors, padded, replicated
from tfacct.accounts.sharding.replicas import along_copies, buckets
from tfacct.accounts.sharding.stages import Stage, microbatches, part
from tfacct.accounts.sharding.steps import (
    along_tokens,
    laid_apart,
    rows,
    units,
    updated,
    vocabulary,
    with_heads_gathered,
    with_wide_buffers,
)
from tfacct.accounts.timeline import peak, timeline
from tfacct.accounts.training import Step
from tfacct.architecture.parts import Attention, Experts
from tfacct.base import units as numbers
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.einsum import letters
from tfacct.ledger.groups import Ledger
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports import mesh as meshes
from tfacct.reports import train_ranks_lora as adapters
from tfacct.reports import training
from tfacct.reports.one_rank import on_ranks
from tfacct.reports.pipes import check_step
from tfacct.reports.stored import names, stored
from tfacct.reports.unruled import encodes, in_parallel
from tfacct.reports.unruled import unruled as part_without_rule
from tfacct.training.optimizers import optimizer
from tfacct.training.recipe import FP32, AttentionKind, Recipe
from tfacct.training.states import optimizer_memory


def refusal(subject: LoadedModel, recipe: Recipe) -> str | None:
    """Reason why one rank's training step is not counted; None if it is."""
    assert recipe.mesh is not None
    return unruled(subject, recipe) or training.refusal(_on_rank(subject, recipe.mesh), alone(recipe))


def unruled(subject: LoadedModel, recipe: Recipe) -> str | None:
    """Reason why a mesh does not go with a model or a recipe; None if it does."""
    assert recipe.mesh is not None
    try:
        check_step(recipe.mesh)
        meshes.check_ruled(subject, recipe.mesh)
        meshes.check_divided(subject, replace(recipe.mesh, sp=False))
    except TfacctError as error:
        return error.message.removeprefix(f"{subject.name}: ")
    return next(_unruled(subject, recipe), None)


def _attentions(subject: LoadedModel) -> list[Attention]:
    return [part for _, part in _blocks(subject) if isinstance(part, Attention)]


def alone(recipe: Recipe) -> Recipe:
    """The recipe of what one rank computes: on weights that it has gathered, in the dtype of the pass."""
    return replace(recipe, mesh=None, weights_dtype=None if recipe.shards_weights else recipe.weights_dtype)


def computing(recipe: Recipe) -> Recipe:
    """The same, whose tokens go to the experts of other ranks where these divide them."""
    assert recipe.mesh is not None
    return replace(alone(recipe), exchanged=recipe.mesh.ep > 1)


def _on_rank(subject: LoadedModel, mesh: Mesh) -> LoadedModel:
    meshes.check_ruled(subject, mesh)
    meshes.check_divided(subject, replace(mesh, sp=False))
    return on_ranks([subject], mesh.tp, mesh.ep)[0]


def _unruled(subject: LoadedModel, recipe: Recipe) -> Iterator[str]:
    mesh = recipe.mesh
    assert mesh is not None
    how = optimizer(recipe.optimizer)
    if mesh.ranks > mesh.pp and encodes(subject.architecture):
        yield from _unruled_encoder(subject, recipe, mesh)
    if said := _without_rule(subject, recipe):
        yield said
    if recipe.lora is not None or not _computes_whole(mesh):
        yield from _uncompared(subject)
    if recipe.lora is not None and (replicated(subject.ledger, mesh) or {*_padded(subject, mesh)} - {VOCABULARY}):
        yield f"adapters are counted where {option('tp')} divides heads and networks evenly"
    shared = any(isinstance(part, Experts) and part.shared_width is not None for _, part in _blocks(subject))
    if mesh.sp and mesh.ep > 1 and shared:
        yield f"experts that {option('ep')} divides are not counted beside {option('sp', True)} and a shared network"
    if mesh.ep > 1 and any(isinstance(part, Experts) and part.bias for _, part in _blocks(subject)):
        yield f"experts with biases that {option('ep')} divides are not counted"
    if mesh.ep > 1 and recipe.recomputed_modules:
        yield f"experts that {option('ep')} divides are not counted beside {option('recompute', recipe.recompute)}"
    if recipe.lora is not None:
        yield from adapters.unruled(subject, recipe, mesh)
    if recipe.loss != "whole":
        yield "a loss in chunks is not counted on a mesh"
    if recipe.recomputed_modules and mesh.ranks > mesh.tp:
        yield f"{', '.join(recipe.recomputed_modules)} recomputed: counted with {option('tp')} alone"
    if recipe.weights_dtype == FP32 and not recipe.in_fp32 and mesh.fsdp == 1:
        yield f"autocast is not counted on a mesh: {option('fsdp')} casts weights before they are gathered"
    if recipe.attention == "eager" and mesh.parts > 1:
        yield f"eager attention is not counted beside {option('cp')} or {option('ulysses')}"
    if recipe.attention == "eager" and mesh.sp:
        yield f"eager attention is not counted beside {option('sp', True)}"
    if not how.elementwise:
        yield f"{how.name} is not counted on a mesh: optimizers that take each number by itself are"


def _computes_whole(mesh: Mesh) -> bool:
    """True if ranks divide weights and sequences alone: each then computes what one device would."""
    return mesh.ranks == mesh.fsdp * mesh.dp and mesh.ep == 1


def _uncompared(subject: LoadedModel) -> Iterator[str]:
    """What of a model has rules for what is sent, and none for what a step keeps on the way."""
    if any(map(in_parallel, subject.architecture.stacks)):
        yield "no rule for parallel sublayers on a mesh"
    if any(odd.alibi or odd.sinks or odd.gated or odd.temperature for odd in _attentions(subject)):
        yield "no rule for attention with ALiBi, sinks, gates or a temperature on a mesh"


def _without_rule(subject: LoadedModel, recipe: Recipe) -> str | None:
    """Why a part without a rule is refused: on one device its step may not be counted either."""
    mesh = recipe.mesh
    assert mesh is not None
    said = part_without_rule(subject.architecture) if mesh.ranks > mesh.pp else None
    if said is None:
        return None
    if why := training.refusal(subject, alone(recipe)):
        return why
    counted = recipe.lora is None and _computes_whole(mesh) and meshes.divides_weights(subject, mesh)
    return None if counted else f"no rule for {said} on a mesh"


def _unruled_encoder(subject: LoadedModel, recipe: Recipe, mesh: Mesh) -> Iterator[str]:
    """What of an encoder's step has no rule here."""
    if mesh.parts > 1:
        axis = "cp" if mesh.cp > 1 else "ulysses"
        yield f"an encoder's step is not counted beside {option(axis)}: what its attention keeps there was not measured"
    if mesh.pp > 1:
        yield f"stages of an encoder are counted without another axis than {option('pp')}"
    if subject.architecture.encoder is not None and mesh.zero > 1:
        yield f"an encoder with a decoder is not counted with {option('zero', mesh.zero)}"
    if subject.architecture.encoder is not None and recipe.shards_weights and recipe.weights_dtype == FP32:
        # bart's class adds a bias in fp32 to its logits, which are wider then.
        yield f"an encoder with a decoder is counted under {option('fsdp')} {adapters.DTYPE}"
    if recipe.lora is not None:
        yield "adapters of an encoder are not counted on a mesh: only those of decoders were compared with peft's"


def _advice(subject: LoadedModel, recipe: Recipe, why: str) -> str | None:
    """Sizes of `tp` that would do, or what to leave out; None where the reason says it."""
    mesh = recipe.mesh
    assert mesh is not None
    if why.endswith(adapters.DTYPE):
        return f"leave {option('weights_dtype')} out"
    if why.startswith(("stages of an encoder", "an encoder with a decoder")):
        return f"leave {option('pp' if why.startswith('stages') else 'zero')} out"
    if why.startswith("an encoder's step"):
        return f"`tfacct comms {option('train', True)}` counts what it sends beside {option('fsdp')}"
    if why.startswith("adapters of an encoder"):
        return f"leave {option('lora')} or the mesh out"
    if why.endswith("evenly"):
        groups = subject.ledger.groups
        sizes = [group.axes[letter] for group in groups for letter in LIVES if letter in group.axes]
        return f"sizes that divide all: {', '.join(f'{n:,}' for n in divisors(sizes))}"
    if why.startswith("experts that"):
        return (
            f"leave {option('ep')} out: {option('tp')} divides the width of each expert, {option('fsdp')} its weights"
        )
    if why.endswith(adapters.ROOMY):
        fewer = [n for n in range(mesh.tp - 1, 1, -1) if mesh.tp % n == 0 and adapters.roomy(subject, n)]
        return f"{option('tp', fewer[0])} is counted" if fewer else f"leave {option('tp')} out"
    if why.startswith("adapters are counted"):
        return f"leave {option('lora')} or the other axes out"
    for instead, changed in _instead(recipe):
        if refusal(subject, changed) is None:
            return f"{instead} is counted"
    alike: tuple[AttentionKind | None, ...] = (recipe.attention, "eager")
    other = next(
        (kind for kind in alike if not training.refusal(subject, replace(alone(recipe), attention=kind))), None
    )
    if other is None:
        counts = meshes.GATHERED in subject.config.divided
        return f"`tfacct params` and `comms` count its weights under {option('fsdp')}" if counts else None
    also = "" if other == recipe.attention else f", with {option('attention', other)}"
    return f"the step of one device alone is counted{also}"


def _instead(recipe: Recipe) -> Iterator[tuple[str, Recipe]]:
    """What could stand in place of a part of the recipe on its mesh."""
    mesh = recipe.mesh
    assert mesh is not None
    if mesh.pp > 1:
        yield option("schedule", "1f1b"), replace(recipe, mesh=replace(mesh, schedule="1f1b"))
    yield option("attention", "sdpa"), replace(recipe, attention="sdpa")
    yield option("loss", "whole"), replace(recipe, loss="whole")
    yield option("recompute", "full"), replace(recipe, recompute="full")
    if not _computes_whole(mesh):
        yield option("fsdp", mesh.ranks), replace(recipe, mesh=Mesh(fsdp=mesh.ranks))


def _padded(subject: LoadedModel, mesh: Mesh) -> list[str]:
    """Letters of which the last ranks of `tp` have fewer than the first, the one whose step is counted."""
    return [letter for letter, _ in padded(subject.ledger, mesh)]


def _blocks(subject: LoadedModel) -> Iterator[tuple[str, Any]]:
    for stack in subject.architecture.stacks:
        yield from ((sublayer.name, sublayer.part) for sublayer in stack.block.sublayers)


def step_of(subject: LoadedModel, work: Workload, recipe: Recipe) -> Step:
    """The training step of one rank. Raises TfacctError for one that is not counted."""
    mesh = recipe.mesh
    assert mesh is not None
    check_step(mesh)
    why = _without_rule(subject, recipe)
    one = subject if why is not None else _on_rank(subject, mesh)
    why = why or next(_unruled(subject, recipe), None)
    if why is not None:
        raise UsageError(f"{subject.name}: {why}", _advice(subject, recipe, why))
    if mesh.sp and work.tokens % mesh.tp:
        raise UsageError(
            f"{option('tp', mesh.tp)} does not divide T = {work.tokens:,} (tokens)",
            f"{option('sp', True)} divides the tokens: ask for a multiple of {mesh.tp}",
        )
    if mesh.parts > 1:
        meshes.check_sizes(subject, mesh, work.axes())
        work = replace(work, tokens=work.tokens // mesh.parts, context=work.context // mesh.parts)
    if mesh.pp == 1:
        return shared(subject, computed(one, work, recipe), recipe)
    return in_stages(subject, one, work, recipe)


def in_stages(subject: LoadedModel, one: LoadedModel, work: Workload, recipe: Recipe) -> Step:
    """The step of the fullest rank of a pipeline, of a model that `tp` divides as `one` has it."""
    found = (on_stages(subject, own, step, recipe) for own, step in of_stages(one, work, recipe))
    return max(found, key=lambda step: int(peak(timeline(step)).total))


def on_stages(subject: LoadedModel, own: Sequence[Stage], step: Step, recipe: Recipe) -> Step:
    """The step of a rank with some stages, whose copies share moments, or reduce gradients in buckets."""
    return shared(subject, step, recipe, part(subject.ledger, own))


def of_all_stages(one: LoadedModel, work: Workload, recipe: Recipe) -> Step:
    """The step that one microbatch would take on a rank with all stages."""
    assert recipe.mesh is not None
    each = replace(work, batch=work.batch // microbatches(recipe.mesh, work.axes(), train=True))
    return computed(
        one, each, replace(recipe, gradient_accumulation=2 if each.batch < work.batch else recipe.gradient_accumulation)
    )


def of_stages(
    one: LoadedModel, work: Workload, recipe: Recipe, whole: Step | None = None
) -> Iterator[tuple[list[Stage], Step]]:
    """Steps of ranks among which the fullest is, whatever their copies share; `whole`: that of all stages."""
    from tfacct.reports.train_stages import candidates

    mesh = recipe.mesh
    assert mesh is not None
    whole = whole or of_all_stages(one, work, recipe)
    wide = width(recipe.weights_dtype or recipe.dtype).bits // 8

    def made(own: list[Stage]) -> Step:
        ledger = part(one.ledger, own)
        if whole.adapters:
            return adapters.staged(whole, own, recipe)._replace(ledger=ledger)
        tensors = stored(one, ledger)
        memory = optimizer_memory(recipe, tensors, wide)
        most, least = memory.update
        step = whole._replace(ledger=ledger, states=memory.state, update=most, unsure=most - least)
        return step._replace(master_weights=memory.master_weights)

    return candidates(one, mesh, work, recipe.accumulates and mesh.fsdp == 1, made)


def computed(one: LoadedModel, work: Workload, recipe: Recipe) -> Step:
    """The step of the model that a rank of `tp` has, the stream and the loss as its ranks divide them."""
    assert recipe.mesh is not None
    step = training.step_of(one, work, computing(recipe))
    if recipe.mesh.ep > 1:
        step = received(step, recipe.mesh)
    if recipe.mesh.ulysses > 1 or (recipe.mesh.cp > 1 and recipe.mesh.cp_method == "ring"):
        step = laid_apart(step, recipe.mesh)
    if recipe.mesh.tp > 1:
        if VOCABULARY in letters(step.run.logits.spec):
            step = vocabulary(step)
        if meshes.gathers_heads(one):
            step = with_heads_gathered(step, recipe.mesh)
    if recipe.lora is not None and recipe.mesh.tp > 1:
        from tfacct.accounts.sharding.adapters import summed

        return summed(step, "full" if recipe.adapter_dtype == FP32 and not recipe.in_fp32 else "work")
    return along_tokens(step, recipe.mesh) if recipe.mesh.sp else step


def shared(subject: LoadedModel, step: Step, recipe: Recipe, ledger: Ledger | None = None) -> Step:
    """The step where further ranks share weights, gradients or moments, or reduce gradients in buckets. `ledger`:
    the part of the model that a rank has with them, if not all."""
    mesh, each = recipe.mesh, width(recipe.weights_dtype or recipe.dtype)
    assert mesh is not None
    ledger, norms_first = ledger or subject.ledger, meshes.NORMS_FIRST in subject.config.divided
    if mesh.tp > 1 and mesh.sharers == 1 and not mesh.zero and recipe.lora is None:
        step = step._replace(rows=rows(ledger, mesh))
    if mesh.replicas > 1 and mesh.fsdp == 1 and not mesh.zero:
        own = step.adapter_bytes if step.adapters else sum(buckets(ledger, mesh, each.bits, {}))
        step = step._replace(buckets=own)
    shares = along_copies(mesh) if mesh.zero else mesh
    if shares.sharers == 1:
        return step
    if step.adapters:
        return adapters.shared(ledger, step, recipe, units(ledger, mesh, each, norms_first))
    memory = optimizer_memory(recipe, updated(ledger, shares, names(subject)), each.bits // 8)
    step = step._replace(states=memory.state, master_weights=memory.master_weights, update=memory.update.most)
    if mesh.zero == 1:
        return step
    parts = units(ledger, shares, each, norms_first)._replace(gathers=not mesh.zero, accumulates=recipe.accumulates)
    if recipe.shards_weights and each.bits != numbers.dtype_bits(recipe.dtype):
        step = with_wide_buffers(step)
    return step._replace(units=parts, accumulate=step.accumulate and mesh.pp > 1)  # microbatches add up whole ones
