"""Memory of a training step: its phases, its saved activations, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tfacct.accounts.memory import largest_that_fits
from tfacct.accounts.step_flops import recomputed_flops
from tfacct.architecture.parts import mixers
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, shell_option
from tfacct.ledger import paths
from tfacct.ledger.lines import EXPERTS
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Request, Workload, whole_sequences
from tfacct.loading.left_out import LeftOut
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table, Tick, unwatched
from tfacct.parallel.mesh import facts
from tfacct.parallel.pipeline import waits_facts
from tfacct.reports import cells, compose, counting
from tfacct.reports.conventions import TRAINING
from tfacct.reports.ranks import fitting_words, in_devices
from tfacct.training import offload, states
from tfacct.training.adapters import adapted_layers, adapters_of, lora_targets, routed, unpacked_elements
from tfacct.training.batch_sizes import size_facts
from tfacct.training.bounds import accuracy, decides
from tfacct.training.exact import ExactStep, exact
from tfacct.training.graph import SavedTensor
from tfacct.training.loss import CHUNKS
from tfacct.training.memory import TrainingMemory, training_memory
from tfacct.training.optimizers import optimizer
from tfacct.training.parameters import stored
from tfacct.training.recipe import FP32, NF4, Recipe
from tfacct.training.recompute import ATTENTION
from tfacct.training.states import optimizer_memory
from tfacct.training.unsupported import alone, of_another_size, reads_images, refusal

if TYPE_CHECKING:
    from tfacct.reports.budget import Budget

By = Literal["phase", "tensor", "part"]
MOST_NOTES = 3
"""Notes under the table; `--verbose` prints the others."""
RESERVED = "An allocator reserves more: torchtitan's published peaks are 17–24 % higher (4 runs)."


@in_devices
def train(
    models: Sequence[LoadedModel],
    request: Request,
    recipe: Recipe,
    *,
    fit: Budget | None = None,
    by: By = "phase",
) -> Report:
    """Memory of a training step, as the transformers class runs it. `fit`: the memory of a device. Raises
    UsageError."""
    recipe = recipe.checked()
    if request.decode or request.tokens is not None:
        raise whole_sequences("train")
    if by not in TABLES:
        raise UsageError(f"{option('by')} is phase, tensor or part, not {by!r}")
    models, left_out = trainable(models, recipe)
    models, of_other_sizes = _of_size(models, request)
    recipe = recipe.for_models(models)
    every = [training_memory(model, counting.workload(model, request), recipe) for model in models]
    one = every[0] if len(every) == 1 else None
    if one is None and by != "phase":
        raise UsageError(f"{option('by', by)} goes with one MODEL")
    fits = None if one is None or fit is None else budgeted(one, fit)
    if one is None:
        table = several(every, fit)
    else:
        table = levers(fits) if by == "phase" and fits and fits["changes"] else TABLES[by](one)
    facts = [_facts(each, fits) for each in every]
    notes = [_notes(each, found) for each, found in zip(every, facts, strict=True)]
    what = "Training steps" if one is None else f"{compose.name_of(models[0])}: a training step"
    what += "" if recipe.mesh is None else f" on one of {recipe.mesh.ranks:,} ranks"

    def shown(at: slice) -> tuple[list[str], list[str]]:
        """Notes of some models, and those that only `--verbose` prints."""
        if len(every[at]) > 1:
            estimated = not all(each.exact for each in every[at])
            return [*([ESTIMATED] if estimated else []), *(fit.notes if fit else ())], [NOT_INCLUDED]
        (own,), (one,) = notes[at], every[at]
        ranked = [text for _, text in sorted(own, key=lambda note: note[0])]
        brief, others = ranked[: MOST_NOTES - 1], ranked[MOST_NOTES - 1 :]
        last = accuracy(one.model, one.recipe, one.bound)
        return [*brief, *((*fit.notes, RESERVED) if fit else ()), last], [*others, NOT_INCLUDED]

    return compose.report(
        "train",
        models,
        table,
        facts,
        title=f"{what} in {states.precision(recipe)}, {compose.workload_words(models, request)}, {recipe.description}",
        answer=f"{_answer(every, fits, fit)}{_check(one, fit)}",
        convention=f"as transformers runs it with {recipe.runs_with}: {TRAINING}",
        notes=lambda at: shown(at)[0],
        details=lambda at: [*shown(at)[1], f"Counted: {recipe.counted}."],
        requests=[request],
        left_out=[*left_out, *of_other_sizes],
        headline="peak_bytes",
    )


def trainable(models: Sequence[LoadedModel], recipe: Recipe) -> tuple[list[LoadedModel], list[LeftOut]]:
    """Models whose step is answered, and the others. One model alone is refused with its reason later."""
    if len(models) == 1:
        return list(models), []
    reasons: dict[str, list[LoadedModel]] = {}
    for model in models:
        reasons.setdefault(refusal(model, recipe) or "", []).append(model)
    answered = reasons.pop("", [])
    if not answered:
        raise UsageError(f"no training step of these is counted: {'; '.join(reasons)}")
    others = [model for group in reasons.values() for model in group]
    return answered, LeftOut.of(others, "training step not measured; ask for one to read why")


def _of_size(models: list[LoadedModel], request: Request) -> tuple[list[LoadedModel], list[LeftOut]]:
    """Models whose class takes a step of this size, and the others; all, if there is none."""

    def takes(model: LoadedModel) -> bool:
        context = counting.own_request(model, request).ctx
        return counting.takes_context(model, context) and not of_another_size(model, counting.workload(model, request))

    fitting = [model for model in models if takes(model)]
    if not fitting:
        return models, []
    others = [model for model in models if model not in fitting]
    return fitting, LeftOut.of(others, "trains on images of its own size only")


# The answer.


def _answer(every: Sequence[TrainingMemory], fits: dict[str, Any] | None, fit: Budget | None) -> str:
    if len(every) > 1:
        if fit is not None:
            fitting = sum(fits_in(each, fit) for each in every)
            where = fitting_words(fit, every[0].recipe.mesh)
            return f"{fitting:,} of {len(every):,} models fit {where} at the context shown."
        ends = (side(every, key=lambda each: each.peak.total) for side in (min, max))
        small, large = (f"{_estimate(end)}{units.binary(end.peak.total)} ({end.model.name})" for end in ends)
        return f"Needs from {small} to {large} at the peak."
    (one,) = every
    needs = f"needs {_bytes(one)} at its peak ({one.peak.name})"
    if fits is None or fit is None:
        return f"N{needs[1:]}."
    where, at_most, past = fitting_words(fit, one.recipe.mesh), _at_most(one, fits), fits["past_positions"]
    if past is not None:
        return f"Cannot run: {past}. {where[0].upper()}{where[1:]}, {at_most}."
    if one.peak.total <= fit.usable:
        return f"Fits {where}: {needs}; {at_most}{_or_sequences(one, fits)}."
    weights = int(one.peak.weights)
    alone = f": the weights alone are {units.binary(weights)}" if weights > fit.usable else ""
    return f"{'Does' if one.least > fit.usable else 'May'} not fit {where}: {needs}; {at_most}{alone}."


def _check(one: TrainingMemory | None, fit: Budget | None) -> str:
    """What to do if the error bound decides whether a step fits."""
    if one is None or fit is None or not decides(one.bound, int(one.peak.total), fit.usable):
        return ""
    how = "" if one.recipe.mesh is not None else f": check with {option('exact', True)}"
    return f" The budget is within the error bound{how}."


def _bytes(one: TrainingMemory) -> str:
    """The peak: a range where the optimizer's order decides, `≈` where it is not equal to the class to the byte."""
    if one.least != one.peak.total:
        return f"from {units.binary(one.least)} to {units.binary(one.peak.total)}"
    return f"{_estimate(one)}{units.binary(one.peak.total)}"


def _estimate(one: TrainingMemory) -> str:
    return "" if one.exact else "≈ "


def _at_most(one: TrainingMemory, fits: dict[str, Any]) -> str:
    """The longest context that fits, or the most images."""
    if reads_images(one.model):
        most = fits["largest_batch"]
        if most in (None, 1):
            return "not even one image fits" if most is None else "one image fits"
        return f"{most:,} images fit at a time"
    longest = fits["largest_context"]
    most = "not even one token fits" if longest is None else f"{longest:,} tokens fit"
    if longest is not None and longest == one.model.position_limit:
        most = f"{longest:,} tokens, the end of its position embedding, fit"
    return f"{most} at batch {one.work.batch:,}"


def _or_sequences(one: TrainingMemory, fits: dict[str, Any]) -> str:
    """The most sequences of the context that fit."""
    if reads_images(one.model):
        return ""
    largest = fits["largest_batch"]
    if largest is None:  # a pipeline has as many in flight in any batch
        return ", or any number of sequences"
    return f", or {largest:,} sequence{'' if largest == 1 else 's'}"


# Facts, as in the JSON.


OF_RECIPE = (*("dtype", "optimizer", "recompute", "attention", "loss", "master_weights", "lora", "packing", "offload"),)
"""Fields of a recipe that the JSON has as they are."""
PHASE_PARTS = ("weights", "optimizer_state", "gradients", "saved", "temporary", "gathered")


def _facts(one: TrainingMemory, fits: dict[str, Any] | None) -> dict[str, Any]:
    step, recipe, saved = one.step, one.recipe, saved_tensors(one)
    return {
        "workload": counting.workload_facts(one.work, dtype=recipe.dtype),
        **{name: getattr(recipe, name) for name in OF_RECIPE},
        **size_facts(one.work, recipe),
        "weights_dtype": recipe.weights_dtype or recipe.dtype,
        "gradient_dtype": recipe.gradient_dtype or (FP32 if recipe.weights_dtype == FP32 else recipe.dtype),
        "lora_adapters": None if recipe.lora is None else _adapter_facts(one.model, recipe),
        "weights_bytes": step.parameters,
        "optimizer_bytes": step.optimizer_state,
        "master_weights_bytes": step.master_weights,
        "gradients_bytes": one.phases[-1].gradients,
        "saved_bytes": _saved_bytes(one),
        "host_bytes": one.host.total,
        "moved_bytes": one.host.moved,
        "peak_bytes": one.peak.total,
        "peak_phase": one.peak.name,
        "peak_least_bytes": one.least,
        "error_bound": None if one.bound is None else one.bound.share,
        "exact": one.exact,
        **_layout_facts(one),
        "phases": [
            {
                "phase": each.name,
                "operation": each.operation or None,
                **{f"{part.removesuffix('_state')}_bytes": getattr(each, part) for part in (*PHASE_PARTS, "total")},
            }
            for each in one.phases
        ],
        "saved": saved,
        "lines": saved,
        "fit": fits,
    }


def _stage_facts(one: TrainingMemory) -> dict[str, Any]:
    """The rank of a pipeline that is shown, its micro-batches, and those in flight, as in the JSON."""
    mesh, stage = one.recipe.mesh, one.step.stage
    if mesh is None or stage is None:
        return {}
    from tfacct.parallel.pipeline import microbatches

    times = microbatches(mesh, one.work.axes(), train=True)
    return {"stage": stage.rank + 1, "in_flight": stage.in_flight, **waits_facts(mesh, times, train=True)}


def _layout_facts(one: TrainingMemory) -> dict[str, Any]:
    """The parallel layout of a step, what a rank sends, and the whole model, as in the JSON."""
    mesh, recipe = one.recipe.mesh, one.recipe
    if mesh is None:
        return {"mesh": None, "sent_bytes": None, "whole": None}
    from tfacct.training.layouts import sent_bytes

    whole = training_memory(one.model, one.work, alone(recipe))
    weights, state, gradients = whole.step.parameters, whole.step.optimizer_state, whole.phases[-1].gradients
    if recipe.shards_weights and recipe.weights_dtype == FP32:  # stored so, and cast when they are gathered
        tensors, each = stored(one.model), width(FP32)
        weights = gradients = each.bytes(sum(tensor.copies * tensor.elements for tensor in tensors))
        state = optimizer_memory(recipe, tensors, each.bits // 8).state
    return {
        "mesh": facts(mesh),
        "sent_bytes": sent_bytes(one.model, one.work, recipe),
        **_stage_facts(one),
        "whole": {
            "weights_bytes": weights,
            "optimizer_bytes": state,
            "gradients_bytes": gradients,
            "saved_bytes": whole.step.saved_bytes(),
        },
    }


def _adapter_facts(model: LoadedModel, recipe: Recipe) -> dict[str, Any]:
    """The adapters, as in the JSON."""
    targets, modules = lora_targets(recipe.lora or ""), model.config.hf_module_paths()
    layers = adapted_layers(model, targets)
    on = list(dict.fromkeys(line.path for layer in layers for line in layer.matmuls))
    adapters, _ = adapters_of(model, recipe)
    return {
        "rank": targets.rank,
        "dtype": recipe.adapter_dtype,
        "dropout": recipe.lora_dropout,
        "weights": recipe.weights_dtype or recipe.dtype,
        "products": [paths.short(path) for path in on],
        "modules": list(dict.fromkeys(modules.get(path, path) for path in on)),
        "params": sum(len(each.numbers) * int(each.elements) for each in adapters),
        "bytes": sum(len(each.numbers) * int(each.bytes) for each in adapters),
    }


# Saved tensors.

DTYPES = {"fp32": "fp32", "mask": "bool", "index": "int64", "int32": "int32", "seed": None}
"""Dtype of a saved tensor by its role, if it is not that of the step. The seed of a kernel is two integers."""
PARTS = {"loss": "loss", "attn": "attention", "cross": "cross-attention", "mlp": "MLP"}
"""Parts of a model, by the first word of their paths."""
INPUTS, OTHERS, IN_FLIGHT = "matmul inputs", "others", "other micro-batches"
ENCODER_OUTPUT = "memory"
"""The path of what an encoder gives its decoder."""


def saved_tensors(one: TrainingMemory) -> list[dict[str, Any]]:
    """Tensors saved for the backward pass, as in the JSON. Layers of several kinds share a line where they save a
    tensor of the same size."""
    found: dict[tuple[SavedTensor, Any], dict[str, Any]] = {}
    for group in one.step.graph.groups:
        tensors = one.step.saved_in(group)
        for tensor, size in zip(tensors, one.step.bytes_in(group).each(tensors), strict=True):
            row = found.setdefault((tensor, size), _row(tensor, one.recipe.dtype))
            row["count"] += group.count * tensor.times
            row["bytes"] += group.count * size
    stage = one.step.stage
    if stage is not None and stage.saved:
        waiting = _row(SavedTensor(IN_FLIGHT, "", ()), "")
        found[SavedTensor(IN_FLIGHT, "", ()), 0] = {**waiting, "count": stage.in_flight - 1, "bytes": stage.saved}
    return [*found.values()]


def _saved_bytes(one: TrainingMemory) -> Any:
    """Saved bytes of all micro-batches in flight."""
    return one.step.saved_bytes() + (0 if one.step.stage is None else one.step.stage.saved)


def _row(tensor: SavedTensor, dtype: str) -> dict[str, Any]:
    return {
        "path": tensor.path,
        "part": _part(tensor),
        "axes": tensor.axes,
        "dtype": DTYPES.get(tensor.role, dtype) or None,
        "count": 0,
        "bytes": 0,
        "saved_for": list(tensor.saved_for),
    }


def _part(tensor: SavedTensor) -> str:
    """The part of the model that saves a tensor."""
    path = tensor.path
    if path == IN_FLIGHT:
        return path
    if path.startswith(f"{paths.ENCODER}.") or path == ENCODER_OUTPUT:
        return paths.ENCODER
    name, _, leaf = path.removeprefix("blocks.*.").partition(".")
    if (leaf or name).endswith("weight_cast"):
        return "weight casts"
    if ("norm" in name and not leaf) or leaf == "in" or leaf.endswith(".in") or path == "lm_head.in":
        return INPUTS
    if name in PARTS or name in mixers():
        return PARTS.get(name, name)
    if name in ("in", "residual stream"):
        if not tensor.saved_for:
            return "layer inputs"
        return "norms" if any("norm" in operation for operation in tensor.saved_for) else INPUTS
    return "norms" if "norm" in name or name.startswith("mid") else OTHERS


def by_part(saved: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Saved bytes by part of the model."""
    found: dict[str, int] = {}
    for line in saved:
        found[line["part"]] = found.get(line["part"], 0) + line["bytes"]
    return found


# Tables.

DROPPED = {"weights": 3, "optimizer_state": 2, "gradients": 1, "saved": 1, "temporary": 1, "total": 0}
"""Columns of phases, and when they leave a narrow table: first those that are the same in nearly all phases."""


def phase_table(one: TrainingMemory) -> Table:
    """The phases of one step, the peak marked."""
    unit = units.binary_unit(int(one.peak.total))
    columns = (
        Column("phase", f"{unit} in each phase"),
        *(
            Column(key, key.removesuffix("_state"), "bytes", drop, empty="–", unit=unit)
            for key, drop in DROPPED.items()
        ),
        Column("peak", "", drop=6),
    )
    rows: tuple[Row, ...] = tuple(
        {
            "phase": each.name,
            **{key: getattr(each, key) or None for key in DROPPED},
            "temporary": each.temporary + each.gathered or None,
            "peak": "peak" if each is one.peak else None,
        }
        for each in one.phases
    )
    return columns, (rows,), ({"phase": "peak", **dict.fromkeys(DROPPED, ""), "total": one.peak.total},)


def tensor_table(one: TrainingMemory) -> Table:
    """Every saved tensor."""
    columns = (
        Column("path", "tensor"),
        Column("axes", "axes", "spec", drop=2),
        Column("dtype", "dtype", drop=3),
        Column("count", "count", "count", drop=1),
        Column("bytes", "bytes", "bytes"),
        Column("share", "share", "share"),
        Column("saved_for", "saved for", drop=4),
    )
    saved = saved_tensors(one)
    whole = sum(line["bytes"] for line in saved)
    rows: list[Row] = [
        {
            **{key: line[key] for key in ("axes", "count", "bytes")},
            "path": paths.short(line["path"]),
            "dtype": line["dtype"] or "",
            "share": Fraction(line["bytes"], whole),
            "saved_for": ", ".join(paths.short(name) for name in line["saved_for"]),
        }
        for line in saved
    ]
    return columns, (tuple(rows),), ({"path": "saved", "bytes": whole, "share": Fraction(1)},)


def part_table(one: TrainingMemory) -> Table:
    """Saved bytes by part of the model."""
    columns = (
        Column("part", "part"),
        Column("bytes", "bytes", "bytes"),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    parts = by_part(saved_tensors(one))
    whole = sum(parts.values())
    rows = tuple(cells.with_share({"part": part, "bytes": size}, size, whole) for part, size in parts.items())
    return columns, (rows,), ({"part": "saved", "bytes": whole, "share": Fraction(1)},)


TABLES = {"phase": phase_table, "tensor": tensor_table, "part": part_table}


def several(every: Sequence[TrainingMemory], fit: Budget | None) -> Table:
    """One row for each model: its peak, and the phase."""
    estimated = not all(each.exact for each in every)
    columns = (
        Column("model", "model"),
        Column("context", "context", "count", drop=3),
        Column("weights_bytes", "weights", "bytes", drop=2),
        Column("optimizer_bytes", "optimizer state", "bytes", drop=4),
        Column("saved_bytes", "saved", "bytes", drop=1),
        *((Column("estimated", ""),) if estimated else ()),
        Column("peak_bytes", "peak", "bytes"),
        Column("peak_phase", "peak phase", drop=5),
        *((Column("fits", ""),) if fit is not None else ()),
    )
    rows: list[Row] = [
        {
            "model": compose.name_of(each.model),
            "context": each.work.context,
            "weights_bytes": each.peak.weights,
            "optimizer_bytes": each.step.optimizer_state,
            "saved_bytes": _saved_bytes(each),
            "estimated": None if each.exact else "≈",
            "peak_bytes": each.peak.total,
            "peak_phase": each.peak.name,
            "fits": "fits" if fit is not None and fits_in(each, fit) else None,
        }
        for each in every
    ]
    return columns, (tuple(rows),), ()


# A budget: what fits, and the levers that make more of it fit.

HEAD = "lm_head"
LONGEST = 2**30
"""Tokens or sequences beyond which nobody asks what fits."""
LORA, FROZEN = {"lora": "16", "adapter_dtype": "bf16"}, "frozen weights"
LEVERS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"optimizer": "adamw-8bit"}, "8-bit optimizer"),
    ({"loss": "chunked"}, ""),
    ({"recompute": "attention"}, ""),
    ({"recompute": "full"}, ""),
    (LORA, FROZEN),
    ({"optimizer": "sgd"}, "no momentum"),
    ({"offload": "optimizer"}, "transfers"),
    ({"lora": "16"}, FROZEN),
    ({"recompute": "full", "loss": "chunked"}, ""),
    ({"recompute": "full", "optimizer": "adamw-8bit"}, "8-bit optimizer"),
    ({"recompute": "full", "optimizer": "sgd"}, "no momentum"),
    ({"recompute": "full", **LORA}, FROZEN),
    ({"recompute": "full", "lora": "16", "weights_dtype": NF4}, "frozen 4-bit weights"),
)
"""Changes of a recipe, and what each costs next to FLOPs, the cheapest first. Adapters that are not in fp32 have the
dtype of the step."""


def fits_in(one: TrainingMemory, budget: Budget) -> bool:
    """True if the step can run, and its peak fits."""
    return one.model.past_positions(one.work) is None and bool(one.peak.total <= budget.usable)


def budgeted(one: TrainingMemory, given: Budget) -> dict[str, Any]:
    """The largest context and batch that fit and, if the step does not, the changes that lower its peak."""
    budget, past, mesh = given.usable, one.model.past_positions(one.work), one.recipe.mesh
    least = 1 if mesh is None else mesh.pieces  # tokens that ranks divide
    each = 1 if mesh is None else mesh.microbatches or (mesh.pp if mesh.chunks > 1 else 1)  # sequences, likewise
    limit = one.model.position_limit or LONGEST

    def peak(context: int, batch: int, recipe: Recipe) -> int:
        work = replace(one.work, context=context, tokens=context, batch=batch)
        return int(training_memory(one.model, work, recipe).peak.total)

    def most_sequences(recipe: Recipe) -> int:
        return each * largest_that_fits(lambda n: peak(one.work.context, each * n, recipe), budget, LONGEST // each)

    def longest(recipe: Recipe) -> int | None:
        if reads_images(one.model):
            return one.model.context if peak(one.model.context, one.work.batch, recipe) <= budget else None
        most = largest_that_fits(lambda n: peak(least * n, one.work.batch, recipe), budget, limit // least)
        return least * most or None

    batch: int | None = 0 if past is not None else most_sequences(one.recipe)
    if batch == LONGEST // each * each and mesh is not None and mesh.pp > 1:
        batch = None  # as many are in flight in any larger batch
    changes = [] if one.peak.total <= budget else list(_changes(one, budget))
    for change in changes:
        recipe = change.pop("recipe")
        change["largest_context"] = longest(recipe)
        if reads_images(one.model):
            change["largest_batch"] = most_sequences(recipe) or None
    return {
        **given.facts,
        "fits": fits_in(one, given),
        "past_positions": past,
        "context_limit": one.model.position_limit,
        "largest_context": longest(one.recipe),
        "largest_batch": batch or None,
        "changes": changes,
    }


def _changes(one: TrainingMemory, budget: int) -> Iterator[dict[str, Any]]:
    """Levers that lower the peak: the new peak, the bytes freed, and what they cost."""
    ledger, at = one.model.ledger, one.work.axes()
    step = ledger.total_flops(at) + ledger.total_flops(at, backward=True)

    def recomputed(recipe: Recipe) -> int:
        chunked = recipe.loss == "chunked"
        head = sum(each.forward for each in ledger.products(at) if each.path == HEAD) if chunked else 0
        attention = recipe.recompute == ATTENTION
        return int(head) + (0 if recipe.recompute == "none" else int(recomputed_flops(ledger, at, attention=attention)))

    seen, counted = [one.recipe], one.recipe.recompute in ("none", "full", ATTENTION)
    for fields, cost in LEVERS:
        fields = {**fields, "adapter_dtype": one.recipe.dtype} if "adapter_dtype" in fields else fields
        changed, adapts = replace(one.recipe, **fields), "lora" in fields
        if changed.weights_dtype == NF4 and changed.in_fp32:
            continue
        if changed in seen or (adapts and one.recipe.lora is not None) or refusal(one.model, changed) is not None:
            continue
        seen.append(changed)
        found = training_memory(one.model, one.work, changed)
        peak = int(found.peak.total)
        if peak >= one.peak.total or found.step.optimizer_state > one.step.optimizer_state:
            continue
        more = Fraction(recomputed(changed) - recomputed(one.recipe), step)
        costs = [f"{units.percent(more, 0)} more FLOPs"] if more > 0 and counted and not adapts else []
        yield {
            "set": fields,
            "peak_bytes": peak,
            "freed_bytes": int(one.peak.total) - peak,
            "flops_ratio": 1 + more if counted and not adapts else None,
            "costs": ", ".join([*costs, *([cost] if cost else [])]),
            "fits": peak <= budget,
            "recipe": changed,
        }


def levers(fits: dict[str, Any]) -> Table:
    """What would make a step fit."""
    images = any("largest_batch" in change for change in fits["changes"])
    most = ("largest_batch", "most images") if images else ("largest_context", "longest context")
    columns = (
        Column("set", "change"),
        Column("peak_bytes", "peak", "bytes"),
        Column("freed_bytes", "frees", "bytes", drop=2),
        Column("costs", "costs", drop=3),
        Column(*most, "count", drop=1, empty="–"),
        Column("fits", ""),
    )
    rows: tuple[Row, ...] = tuple(
        {
            **{key: change[key] for key in ("peak_bytes", "freed_bytes", "costs", most[0])},
            "set": " ".join(f"{shell_option(name)} {value}" for name, value in change["set"].items()),
            "fits": "fits" if change["fits"] else None,
        }
        for change in fits["changes"]
    )
    return columns, (rows,), ()


# Notes.


class Note(NamedTuple):
    """A line under the table, printed if `when` is true of the step, or None. Rank 1 changes a decision, 2 is an
    assumption, 3 is background. `text` is formatted with the facts."""

    rank: int
    when: Callable[[TrainingMemory], object] | None
    text: str | Callable[[TrainingMemory, dict[str, Any]], str]


NOT_INCLUDED = "Not included: rounding in the allocator, workspaces of kernels, CUDA context, NCCL, torch.compile."
ESTIMATED = "≈: within an error bound, which the answer for one model prints."


def _notes(one: TrainingMemory, facts: dict[str, Any]) -> list[tuple[int, str]]:
    """Notes that apply, with their ranks."""
    found = []
    for note in NOTES:
        if note.when is None or note.when(one):
            text = note.text if isinstance(note.text, str) else note.text(one, facts)
            found += [(note.rank, text.format(**facts, chunks=CHUNKS))] if text else []
    return found


def _saved(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    """Saved bytes, and the three parts with most."""
    parts = sorted(by_part(facts["saved"]).items(), key=lambda part: -part[1])
    named = _sizes(dict(parts[:3]), int(facts["saved_bytes"]))
    return f"Saved activations: {units.binary(facts['saved_bytes'])} ({named}{', …' if len(parts) > 3 else ''})."


def _sizes(named: dict[str, int], largest: int) -> str:
    """Sizes with their names, in the unit of the largest."""
    unit = units.binary_unit(largest)
    return ", ".join(f"{name} {units.in_binary_unit(int(size), unit)}" for name, size in named.items())


def _adapters(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    """How large the adapters are."""
    own = facts["lora_adapters"]
    words = f"{own['params']:,} parameters, {units.binary(own['bytes'])}"
    return f"Adapters: rank {own['rank']} in {own['dtype']}, {words}. Other weights are frozen."


def _adapted(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    """Which layers have adapters, by their own names."""
    modules = one.model.config.hf_module_paths()
    layers = adapted_layers(one.model, lora_targets(one.recipe.lora or ""))
    named = ", ".join(dict.fromkeys(layer.name(modules) for layer in layers))
    experts = "; not on routers and routed experts (peft: target_parameters)" if routed(one.model) else ""
    return f"Adapters are on {named}{experts}."


def _lora_saves_more(one: TrainingMemory, facts: dict[str, Any]) -> str:
    """LoRA next to full fine-tuning, if it saves more."""
    weights = one.recipe.weights_dtype if one.recipe.autocast else None
    full = replace(one.recipe, lora=None, adapter_dtype=FP32, lora_dropout=0.0, weights_dtype=weights)
    try:
        saved = training_memory(one.model, one.work, full).step.saved_bytes()
    except TfacctError:
        return ""
    if facts["saved_bytes"] <= saved:
        return ""
    own, other = units.binary(facts["saved_bytes"]), units.binary(saved)
    in_fp32 = one.recipe.adapter_dtype != one.recipe.dtype and not one.recipe.autocast
    lever = f": try {option('adapter_dtype', one.recipe.dtype)}" if in_fp32 else ""
    return f"LoRA saves {own} of activations, full fine-tuning {other}{lever}."


def _prepared(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    """What peft's preparation of 4-bit weights adds."""
    more = units.binary(2 * unpacked_elements(one.model))
    also = "" if one.recipe.recompute == "full" else f", and sets {option('recompute', 'full')}"
    return f"peft's prepare_model_for_kbit_training casts 16-bit weights to fp32 (+{more}, not included){also}."


def _packed(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    row = one.recipe.runs(one.work)
    flash = f"flash attention needs no mask: {option('batch', 1)} {option('ctx', row.tokens)}"
    return f"One row of {row.tokens:,} tokens with a mask between sequences; {flash}."


def _precision(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    """Which dtypes weights, gradients and optimizer state have."""
    recipe = one.recipe
    if recipe.autocast:
        return "Weights, gradients and optimizer state are in fp32; autocast makes {dtype} copies."
    if recipe.weights_dtype == FP32 and recipe.shards_weights:
        return "Weights, gradients and optimizer state are in fp32; gathered weights in {dtype}."
    if recipe.master_weights is not None:
        return states.MASTER_WEIGHTS[recipe.fp32_gradients]
    master = "" if recipe.in_fp32 else ": no fp32 master weights"
    return f"Weights, gradients and optimizer state are in {{dtype}}{master}."


def _labels(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    model = one.model.architecture
    if model.encoder is not None:
        return "Labels are the decoder's tokens, shifted by one."
    if reads_images(one.model):
        return "Each image has one label."
    pooled = model.classes is not None and model.classes.pooled
    return "Each sequence has one label." if pooled else "Labels are the tokens."


def _sent(one: TrainingMemory, facts: dict[str, Any]) -> str:
    whose = "The rank that sends most sends" if facts["mesh"]["pp"] > 1 else "Each rank sends"
    recomputed = one.recipe.recompute != "none" and facts["mesh"]["tp"] * facts["mesh"]["ep"] > 1
    return f"{whose} {units.binary(facts['sent_bytes'])} in a step{', without recomputation' if recomputed else ''}."


def _whole(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    keys = {"weights": "weights", "optimizer state": "optimizer", "gradients": "gradients", "saved": "saved"}
    sizes = {name: int(facts["whole"][f"{key}_bytes"]) for name, key in keys.items()}
    return f"On one device, in {units.binary_unit(max(sizes.values()))}: {_sizes(sizes, max(sizes.values()))}."


def _tensor_parallel(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    from tfacct.reports import ranks

    assert one.recipe.mesh is not None
    whole = "is sharded too" if one.recipe.mesh.sp else "is whole on each rank"
    shards = f"Tensor parallelism shards heads, MLP and vocabulary; the residual stream {whole}."
    return " ".join([shards, *ranks.uneven([one.model], one.recipe.mesh)])


def _experts(one: TrainingMemory, facts: dict[str, Any]) -> str:
    ep, most = facts["mesh"]["ep"], facts["mesh"]["imbalance"]
    banks = sorted({group.axes[EXPERTS] for group in one.model.ledger.groups if EXPERTS in group.axes})
    shares = " or ".join(f"{bank // ep:,} of {bank:,}" for bank in banks)
    even = "routing is even" if most == 1 else f"it receives {most:g} × the mean"
    return f"A rank has {shares} experts; {even}."


def _stage(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    flying = facts["in_flight"]
    many = f"{flying:,} micro-batch{'' if flying == 1 else 'es'}"
    return f"Pipeline rank {facts['stage']:,} of {facts['mesh']['pp']:,} has the highest peak: {many} in flight."


def _mesh(**least: int) -> Callable[[TrainingMemory], object]:
    """True of a layout with more than this many ranks along an axis."""

    def of(one: TrainingMemory) -> bool:
        mesh = one.recipe.mesh
        return mesh is not None and all(getattr(mesh, axis) > size for axis, size in least.items())

    return of


NOTES = (
    Note(1, lambda one: one.least < one.peak.total, "The order of the parameters decides the optimizer's temporaries."),
    Note(1, lambda one: one.recipe.lora, _lora_saves_more),
    Note(1, _mesh(), _sent),
    Note(1, lambda one: one.recipe.offload, lambda one, _: offload.words(one.host)),
    Note(1, lambda one: one.recipe.packing, _packed),
    Note(2, _mesh(pp=1), _stage),
    Note(2, _mesh(ep=1), _experts),
    Note(2, _mesh(parts=1), "Buffers for keys and values of other ranks are not included."),
    Note(2, lambda one: one.recipe.lora, _adapters),
    Note(2, lambda one: one.recipe.lora is None, _precision),
    Note(2, None, _saved),
    Note(2, lambda one: optimizer(one.recipe.optimizer).paged, "Optimizer state is paged: it can move to the host."),
    Note(2, lambda one: one.model.quantized, "The published weights are quantized; these are in {weights_dtype}."),
    Note(3, lambda one: one.recipe.loss == "chunked", "Head and loss run in {chunks} chunks of the tokens."),
    Note(2, lambda one: one.recipe.weights_dtype == NF4, _prepared),
    Note(3, lambda one: one.recipe.weights_dtype == NF4, "One 4-bit weight at a time is unpacked for its gradient."),
    Note(3, lambda one: one.recipe.lora, _adapted),
    Note(
        3,
        lambda one: one.recipe.lora and one.model.architecture.classes,
        "The classes' head is frozen, as in peft without a task type.",
    ),
    Note(3, lambda one: reads_images(one.model) and not one.recipe.in_fp32, "The batch of images is in fp32."),
    Note(3, _mesh(), _whole),
    Note(3, _mesh(fsdp=1), "Each FSDP rank has a batch of its own."),
    Note(3, _mesh(fsdp=1), "Temporary memory includes gathered weights."),
    Note(3, _mesh(zero=0), "Gradient buckets of the engine are not included."),
    Note(3, _mesh(tp=1), _tensor_parallel),
    Note(3, None, _labels),
    Note(3, None, "This is the second step, when the optimizer state exists."),
)


# `--exact`: the class itself.


@record
class Measured:
    """A model's step of the class, and that of the formula, or why there is none."""

    model: LoadedModel
    work: Workload
    recipe: Recipe
    step: ExactStep
    formula: TrainingMemory | None = None
    no_formula: str | None = None

    @property
    def error(self) -> Fraction | None:
        """How far the formula's peak is from the class's, as a share of that."""
        return None if self.formula is None else _share_off(int(self.formula.peak.total), self.step.peak_bytes)


def measure(model: LoadedModel, work: Workload, recipe: Recipe, progress: Tick = unwatched) -> Measured:
    """One training step of the class, and of the formula where it answers. Raises TfacctError."""
    if recipe.mesh is not None:
        raise UsageError(
            f"nothing divides a class on the meta device: {option('exact', True)} runs on one device",
            f"leave the parallel layout out, or {option('exact')}",
        )
    step = exact(model, work, recipe, progress)
    try:
        return Measured(model, work, recipe, step, training_memory(model, work, recipe))
    except TfacctError as error:
        return Measured(model, work, recipe, step, None, error.message)


def slow_words(models: Sequence[LoadedModel]) -> str | None:
    """Warning about a class that takes long to run; None of others."""
    found = ((one.name, part.hf_loop) for one in models for part in one.architecture.parts() if part.hf_loop)
    name, loop = next(found, (None, None))
    return None if name is None else f"hint: the class of {name} loops over {loop}"


def train_exact(
    models: Sequence[LoadedModel],
    request: Request,
    recipe: Recipe,
    *,
    fit: Budget | None = None,
    by: str = "phase",
    progress: Tick = unwatched,
) -> Report:
    """Bytes of a training step of the class itself. `fit`: the memory of a device. Needs torch and transformers.
    Raises TfacctError."""
    recipe = recipe.checked()
    if len(models) > 1:
        raise UsageError(f"{option('exact', True)} runs the class of one model", "name one MODEL")
    (model,) = models
    if request.decode or request.tokens is not None:
        raise whole_sequences("train")
    if by != "phase":
        raise UsageError(f"{option('by', by)} does not work with {option('exact', True)}", "its table is by module")
    one = measure(model, counting.workload(model, request), recipe, progress)
    facts = _exact_facts(one, fit)
    runs = f"{one.step.class_name} with {one.step.attention}"
    return compose.report(
        "train",
        [model],
        _exact_table(one.step),
        [facts],
        title=f"{compose.name_of(model)}: a training step in {states.precision(recipe)},"
        f" {compose.workload_words([model], request)}, {recipe.description}",
        answer=_exact_answer(one, fit),
        convention=f"{runs} on the meta device: every tensor that autograd saves, and every tensor that is alive",
        notes=lambda _: [*_exact_notes(one), *(fit.notes if fit is not None else ())],
        counted=f"by running {runs}, not by a formula",
        requests=[request],
        headline="peak_bytes",
        record="train-exact",
    )


def _exact_answer(one: Measured, fit: Budget | None) -> str:
    step = one.step
    versions = ", ".join(f"{name} {'.'.join(version.split('.')[:2])}" for name, version in step.versions.items())
    needs = f"{units.binary(step.peak_bytes)} at its peak ({step.peak_bytes:,} bytes)"
    how = f"measured by running {step.class_name} on the meta device ({versions})"
    if fit is None:
        return f"Needs {needs}, {how}."
    return f"{'Fits' if step.peak_bytes <= fit.usable else 'Does not fit'} {fit.where}: needs {needs}, {how}."


def _exact_notes(one: Measured) -> Iterator[str]:
    step = one.step
    yield (
        f"Peak phase: {step.peak_phase}. Weights {units.binary(step.parameter_bytes)}, all gradients"
        f" {units.binary(step.gradient_bytes)}, optimizer state {units.binary(step.optimizer_bytes)}."
    )
    if one.formula is None or one.error is None:
        yield f"The formula has no answer: {one.no_formula}."
    else:
        peak = int(one.formula.peak.total)
        yield f"The formula gives {units.binary(peak)} ({peak:,} bytes): {error_words(one.error)}."
    yield NOT_INCLUDED


def error_words(error: Fraction) -> str:
    """A formula's error in words: `0.02% more`."""
    if error == 0:
        return "the same"
    size, side = abs(error) * 100, "more" if error > 0 else "less"
    places = next((places for places in (1, 2, 3, 4) if round(size, places)), None)
    return f"under 0.0001% {side}" if places is None else f"{units.decimals(size, places)}% {side}"


def _share_off(formula: int, measured: int) -> Fraction:
    return Fraction(formula - measured, measured) if measured else Fraction(0)


def _exact_table(step: ExactStep) -> Table:
    """Saved bytes by the modules that save them, largest first."""
    columns = (
        Column("module", "saved for backward by"),
        Column("bytes", "bytes", "bytes"),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    rows: tuple[Row, ...] = tuple(
        cells.with_share({"module": module, "bytes": size}, size, step.saved_bytes)
        for module, size in step.saved_by.items()
    )
    return columns, (rows,), ({"module": "saved for backward", "bytes": step.saved_bytes, "share": Fraction(1)},)


def _exact_facts(one: Measured, fit: Budget | None) -> dict[str, Any]:
    step, recipe, formula = one.step, one.recipe, one.formula
    fits = None
    if fit is not None:
        fits = {**fit.facts, "fits": step.peak_bytes <= fit.usable}
    return {
        "workload": counting.workload_facts(one.work, dtype=recipe.dtype),
        "class_name": step.class_name,
        "versions": step.versions,
        "seconds": round(step.seconds, 3),
        "attention": step.attention,
        "dtype": recipe.dtype,
        "optimizer": recipe.optimizer,
        "recompute": recipe.recompute,
        "loss": recipe.loss,
        "weights_dtype": recipe.weights_dtype or recipe.dtype,
        "lora": recipe.lora,
        "weights_bytes": step.parameter_bytes,
        "optimizer_bytes": step.optimizer_bytes,
        "gradients_bytes": step.gradient_bytes,
        "saved_bytes": step.saved_bytes,
        "peak_bytes": step.peak_bytes,
        "peak_phase": step.peak_phase,
        "exact": True,
        "formula_saved_bytes": None if formula is None else int(formula.step.saved_bytes()),
        "formula_peak_bytes": None if formula is None else int(formula.peak.total),
        "formula_error": None if one.error is None else float(one.error),
        "formula_why_not": one.no_formula,
        "fit": fits,
        "lines": [{"module": module, "bytes": size} for module, size in step.saved_by.items()],
    }
