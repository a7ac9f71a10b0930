"""The memory of a training step, on one device or on a rank of a layout: its phases, its peak, and what fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any, TypeAlias, TypedDict, get_args

from tfacct.accounts.memory import largest_that_fits
from tfacct.accounts.step_flops import How, recomputed_flops
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.einsum import Axes
from tfacct.ledger.groups import Ledger
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload
from tfacct.loading.memory_limit import Budgeted, MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.training.bounds import Bound, bound, is_published
from tfacct.training.model_step import stored, training_step
from tfacct.training.phases import Phase, peak, phases
from tfacct.training.recipe import FP32, NF4, OFFLOADED, Recipe, micro_batches
from tfacct.training.states import HostMemory, on_device, on_host, optimizer_memory, with_gradient_dtype
from tfacct.training.step import TrainingStep
from tfacct.training.unsupported import (
    OTHER_IMAGES,
    check_supported,
    of_another_size,
    reads_images,
    recipe_of_rank,
    refusal,
)


class TrainingMemory:
    """The memory of a training step: its phases, and the one with the most bytes."""

    def __init__(self, model: LoadedModel, work: Workload, recipe: Recipe, step: TrainingStep) -> None:
        self.model, self.work, self.recipe, self.step = model, work, recipe, step

    @cached_property
    def phases(self) -> list[Phase]:
        """The phases that can be the peak, in their order; the optimizer's step is the last."""
        found = with_gradient_dtype(self.recipe, phases(self.step))
        return on_device(self.recipe, self.step, found)

    @property
    def host(self) -> HostMemory:
        """What is on the host, and what moves between host and device."""
        return on_host(self.recipe, self.step, self.phases[-1].gradients)

    @cached_property
    def peak(self) -> Phase:
        """The phase with the most bytes."""
        return peak(self.phases)

    @property
    def weights_bytes(self) -> Any:
        """Bytes of the parameters."""
        return self.step.parameters

    @property
    def optimizer_bytes(self) -> Any:
        """Bytes of the optimizer state."""
        return self.step.optimizer.state

    @property
    def gradients_bytes(self) -> Any:
        """Bytes of all gradients."""
        return self.phases[-1].gradients

    @property
    def saved_bytes(self) -> Any:
        """Bytes saved for backward; on a pipeline rank of all micro-batches in flight."""
        return self.step.saved_bytes() + (0 if self.step.stage is None else self.step.stage.saved)

    @property
    def peak_bytes(self) -> Any:
        """Bytes of the phase with the most."""
        return self.peak.total

    @property
    def peak_phase(self) -> str:
        """Name of the phase with the most bytes."""
        return self.peak.name

    @property
    def least(self) -> int:
        """The least peak. It is below `peak` if the optimizer step decides and depends on the order of the
        parameters."""
        *others, update = self.phases
        return max(int(update.total - self.step.optimizer.uncertain), *(int(each.total) for each in others))

    @property
    def bound(self) -> Bound | None:
        """The measured error bound of the peak; None if there is none."""
        return bound(self.model, self.recipe, self.work)

    @property
    def exact(self) -> bool:
        """True if every measured peak was equal to the byte, and the config is published as it is."""
        equal = self.bound is not None and self.bound.share == 0 and is_published(self.model)
        return equal and self.least == self.peak.total


def check_step(model: LoadedModel, work: Workload, recipe: Recipe) -> None:
    """Raises TfacctError for a step that is not supported."""
    check_supported(model, recipe)
    if of_another_size(model, work):
        own = f"{OTHER_IMAGES} ({model.context:,} tokens)"
        raise UsageError(f"{model.name}: {own}", option("ctx", model.context))
    if recipe.mesh is not None:
        from tfacct.training.layouts import sequences_of_rank

        sequences_of_rank(model, recipe.mesh, work)
        micro_batches(work, recipe)


def training_memory(model: LoadedModel, work: Workload, recipe: Recipe) -> TrainingMemory:
    """The memory of a training step on one device, on one rank of a parallel layout, or on the pipeline rank with the
    highest peak. Raises TfacctError for a step that is not supported."""
    recipe = recipe.for_model(model)
    check_step(model, work, recipe)
    if recipe.mesh is None:
        return TrainingMemory(model, work, recipe, training_step(model, recipe.runs(work), recipe))
    from tfacct.training.layouts import sequences_of_rank, steps_of_ranks

    steps = steps_of_ranks(model, sequences_of_rank(model, recipe.mesh, work), recipe)
    return max((TrainingMemory(model, work, recipe, step) for step in steps), key=lambda one: int(one.peak.total))


class WholeStep(TypedDict):
    """The training step of the whole model, next to that of one rank."""

    weights_bytes: int
    optimizer_bytes: int
    gradients_bytes: int
    saved_bytes: int


def whole_step(of_rank: TrainingMemory) -> WholeStep:
    """The step on one device. FSDP stores weights in fp32 and casts them when they are gathered."""
    model, recipe = of_rank.model, of_rank.recipe
    one = training_memory(model, of_rank.work, recipe_of_rank(recipe))
    weights, state, gradients = one.weights_bytes, one.optimizer_bytes, one.gradients_bytes
    if recipe.shards_weights and recipe.weights_dtype == FP32:
        tensors, each = stored(model), width(FP32)
        weights = gradients = each.bytes(sum(tensor.copies * tensor.elements for tensor in tensors))
        state = optimizer_memory(recipe, tensors).state
    return {
        "weights_bytes": int(weights),
        "optimizer_bytes": int(state),
        "gradients_bytes": int(gradients),
        "saved_bytes": int(one.saved_bytes),
    }


def memory_at(model: LoadedModel, recipe: Recipe) -> Callable[[Workload], TrainingMemory]:
    """The memory of a model's training step at any workload; the last one is cached. Raises TfacctError for a recipe
    that is not supported."""
    recipe = recipe.checked()
    check_supported(model, recipe)
    return lru_cache(maxsize=1)(partial(training_memory, model, recipe=recipe))


def order_matters(model: LoadedModel, recipe: Recipe) -> bool:
    """True if the optimizer's temporary memory depends on the order of the parameters."""
    if recipe.mesh is not None:
        return False  # not supported for this optimizer
    return optimizer_memory(recipe, stored(model)).uncertain > 0


HEAD = re.compile(r"lm_head(?!\.project)").match
"""Matches a matmul of the head that a chunked loss runs again: not a projection in front of it."""
LONGEST = 2**30
"""Largest number of tokens or sequences to try."""
LORA, FROZEN, ADAPTERS = {"lora": "16", "adapter_dtype": "bf16"}, "frozen weights", "16-bit adapters"
Change: TypeAlias = tuple[dict[str, Any], str]
"""Changed fields of a recipe or its layout, and what the change costs besides FLOPs."""
CHANGES: tuple[Change, ...] = (
    ({"sp": True}, ""),
    ({"zero": 1}, ""),
    ({"sp": True, "zero": 1}, ""),
    ({"optimizer": "adamw-8bit"}, "8-bit optimizer"),
    ({"loss": "chunked"}, ""),
    ({"recompute": "attention"}, ""),
    ({"recompute": "full"}, ""),
    (LORA, FROZEN),
    ({"optimizer": "sgd"}, "no momentum"),
    ({"offload": "optimizer"}, "transfers"),
    ({"offload": "activations"}, "transfers"),
    ({"adapter_dtype": "bf16"}, ADAPTERS),
    ({"lora": "16"}, FROZEN),
    ({"sp": True, "recompute": "full"}, ""),
    ({"recompute": "full", "loss": "chunked"}, ""),
    ({"recompute": "full", "optimizer": "adamw-8bit"}, "8-bit optimizer"),
    ({"recompute": "full", "optimizer": "sgd"}, "no momentum"),
    ({"recompute": "full", "loss": "chunked", "adapter_dtype": "bf16"}, ADAPTERS),
    ({"recompute": "full", **LORA}, FROZEN),
    ({"recompute": "full", "lora": "16", "weights_dtype": NF4}, "frozen 4-bit weights"),
)
"""The changes that are tried, the cheapest first. Adapters that are not in fp32 have the dtype of the step."""
COMBINED: tuple[Change, ...] = (
    ({"sp": True}, ""),
    ({"zero": 1}, ""),
    ({"recompute": "full"}, ""),
    ({"loss": "chunked"}, ""),
    ({"optimizer": "adamw-8bit"}, "8-bit optimizer"),
    ({"offload": "optimizer"}, "transfers"),
    ({"offload": "activations"}, "transfers"),
    ({"offload": ",".join(OFFLOADED)}, "transfers"),
)
"""Changes that are combined, one after another, if none is enough; the last `offload` counts."""
LEAST_SHOWN = Fraction(1, 100)
"""Share of a step's FLOPs below which a change costs `under 1%`."""
FLOPS_ALONE = tuple((fields, cost) for fields, cost in CHANGES if len(fields) == 1 and not cost)
"""Options that cost FLOPs without changing the result."""


def fits_in(one: TrainingMemory, limit: MemoryLimit) -> bool:
    """True if the step can run, and its peak fits."""
    return one.model.past_positions(one.work) is None and bool(one.peak.total <= limit.usable)


@lru_cache(maxsize=256)
def _peak(one: TrainingMemory, context: int, batch: int, recipe: Recipe) -> int:
    work = replace(one.work, context=context, tokens=context, batch=batch)
    return int(training_memory(one.model, work, recipe).peak.total)


def largest_batch(one: TrainingMemory, budget: int, recipe: Recipe) -> int:
    """The most sequences of the step's context that fit; 0 if none does."""
    context, mesh = one.work.context, recipe.mesh
    each = 1 if mesh is None else mesh.microbatches or (mesh.pp if mesh.chunks > 1 else 1)  # sequences, likewise
    most = largest_that_fits(lambda n: _peak(one, context, each * n, recipe), budget, LONGEST // each)
    return LONGEST if most == LONGEST // each else each * most


def largest_context(one: TrainingMemory, budget: int, recipe: Recipe) -> int:
    """The longest context that fits at the step's batch; 0 if none does."""
    model, batch = one.model, one.work.batch
    if reads_images(model):
        return model.context if _peak(one, model.context, batch, recipe) <= budget else 0
    least = 1 if recipe.mesh is None else recipe.mesh.sequence_chunks  # tokens that ranks divide
    longest = model.position_limit or LONGEST
    return least * largest_that_fits(lambda n: _peak(one, least * n, batch, recipe), budget, longest // least)


class TrainFit(Budgeted):
    """Whether a training step fits a budget, and the changes that lower its peak."""

    changes: list[dict[str, Any]]


def what_fits(one: TrainingMemory, given: MemoryLimit) -> TrainFit:
    """The largest context and batch that fit and, if the step does not, the changes that lower its peak."""
    budget, mesh = given.usable, one.recipe.mesh
    batch = largest_batch(one, budget, one.recipe)
    lower = [] if one.peak.total <= budget else list(changes(one, budget))
    if lower and not any(change["fits"] for change in lower):
        lower += combined(one, budget)
    for change in lower:
        recipe = change.pop("memory").recipe
        change["largest_context"] = largest_context(one, budget, recipe)
        if reads_images(one.model):
            change["largest_batch"] = largest_batch(one, budget, recipe)
    return {
        **given.facts,
        "devices": given.count if mesh is None else mesh.ranks,
        "fits": fits_in(one, given),
        "context_limit": one.model.position_limit,
        "largest_context": largest_context(one, budget, one.recipe),
        "largest_batch": None if batch == LONGEST else batch,  # a pipeline has no more of a larger one in flight
        "changes": lower,
    }


def _with_changes(recipe: Recipe, fields: Mapping[str, Any]) -> Recipe:
    """The recipe with changed fields, of which `sp` and `zero` are of its layout; the same where they do not apply."""
    mesh = recipe.mesh
    if mesh is not None and mesh.tp > 1 and "sp" in fields:
        mesh = replace(mesh, sp=True)
    if mesh is not None and mesh.dp > 1 and mesh.fsdp == 1 and "zero" in fields:
        mesh = replace(mesh, zero=max(mesh.zero, fields["zero"]))
    own = {name: value for name, value in fields.items() if name not in ("sp", "zero")}
    return replace(recipe, mesh=mesh, **own)


def combined(one: TrainingMemory, budget: int) -> list[dict[str, Any]]:
    """The first combination of changes that fits, without those that it does not need, or the largest one; empty if no
    two changes go together."""

    def together(parts: Sequence[Change]) -> list[dict[str, Any]]:
        fields = {name: value for part, _ in parts for name, value in part.items()}
        return list(changes(one, budget, [(fields, ", ".join(dict.fromkeys(cost for _, cost in parts if cost)))]))

    taken, found = list[Change](), list[dict[str, Any]]()
    for change in COMBINED:
        lower = together([*taken, change])
        if not lower or (found and lower[0]["peak_bytes"] >= found[0]["peak_bytes"]):
            continue
        taken, found = [*taken, change], lower
        if lower[0]["fits"]:
            break
    for change in taken[:-1] if found and found[0]["fits"] else ():
        fewer = [other for other in taken if other is not change]
        if (lower := together(fewer)) and lower[0]["fits"]:
            taken, found = fewer, lower
    return found if len(taken) > 1 else []


def flops_run_again(recipe: Recipe, ledger: Ledger, at: Axes, *, masked: bool = False) -> int:
    """FLOPs that a recipe adds to a forward and a backward pass: of recomputed layers or attention, and of the head if
    the loss is in chunks."""
    chunked = recipe.loss == "chunked"
    head = sum(int(each.forward) for each in ledger.products(at) if HEAD(each.path)) if chunked else 0
    how: How = next((how for how in get_args(How) if how == recipe.recompute), "full")
    return head + int(recomputed_flops(ledger, at, how, masked=masked))


def changes(one: TrainingMemory, budget: int | None, tried: Sequence[Change] = CHANGES) -> Iterator[dict[str, Any]]:
    """Changes that lower the peak: the new peak, the bytes freed, and what they cost."""
    ledger, at = one.model.ledger, one.work.axes()
    plain = ledger.total_flops(at) + ledger.total_flops(at, backward=True)

    # These are not the FLOPs of a LoRA step, which computes no gradients of frozen weights.
    counted = one.recipe.lora is None and one.recipe.recompute in get_args(How)
    already, seen = flops_run_again(one.recipe, ledger, at), [one.recipe]
    for fields, cost in tried:
        fields = {**fields, "adapter_dtype": one.recipe.dtype} if "adapter_dtype" in fields else fields
        changed, adapts = _with_changes(one.recipe, fields), "lora" in fields
        apart = one.recipe.lora is not None if adapts else changed.lora is None and "adapter_dtype" in fields
        if changed in seen or apart or refusal(one.model, changed) is not None:
            continue
        seen.append(changed)
        try:
            found = training_memory(one.model, one.work, changed)
        except UsageError:  # sizes that ranks do not divide
            continue
        peak = int(found.peak.total)
        more_state = found.optimizer_bytes > one.optimizer_bytes and "optimizer" in fields
        if peak >= one.peak.total or more_state:
            continue
        more = Fraction(flops_run_again(changed, ledger, at) - already, plain + already)
        percent = units.percent(more, 0) if more >= LEAST_SHOWN else "under 1%"
        costs = [f"{percent} more FLOPs"] if more > 0 and counted and not adapts else []
        yield {
            "set": fields,
            "peak_bytes": peak,
            "exact": found.exact,
            "freed_bytes": int(one.peak.total) - peak,
            "flops_ratio": 1 + more if counted and not adapts else None,
            "costs": ", ".join([*costs, *([cost] if cost else [])]),
            "fits": budget is not None and peak <= budget,
            "memory": found,
        }
