"""What a report says of LoRA: which recipes are counted, the adapters, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfacct.architecture.parts import Embedding
from tfacct.base import units
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.storage import width
from tfacct.loading.model import LoadedModel
from tfacct.training.adapters import (
    ATTENTION,
    adapted,
    adapted_layers,
    linear_layers,
    lora_targets,
    routed,
    unknown_targets,
    unpacked_elements,
)
from tfacct.training.recipe import FP32, NF4, Recipe

if TYPE_CHECKING:
    from tfacct.reports.training import Trained

SMALL_VOCABULARY = 2
"""A vocabulary of fewer than so many hidden sizes: the forward pass of the loss would need more than its gradient."""


def on_attention(model: LoadedModel, text: str) -> list[str]:
    """The same rank on attention's linear layers, together with those that `text` names, and alone."""
    modules, targets = model.config.paths(), lora_targets(text)
    own = [layer.name(modules) for layer in linear_layers(model) if layer.path.startswith(ATTENTION)]
    both = (*targets.names, *own) if targets.names else ()
    return [f"{targets.rank}:{','.join(dict.fromkeys(names))}" for names in (both, own) if names]


def refusal(model: LoadedModel, recipe: Recipe) -> str | None:
    """Why a model's step with adapters is not counted; None if it is."""
    if recipe.lora is None:
        return None
    if recipe.autocast and recipe.adapter_dtype != FP32:
        return f"peft makes adapters in fp32 next to fp32 weights: leave {option('adapter_dtype')} out"
    shape, targets = model.architecture, lora_targets(recipe.lora)
    if recipe.recomputed_modules and recipe.weights_dtype == NF4:
        return "adapters beside weights in nf4 have not been measured with attention that runs again"
    if (why := unknown_targets(model, targets)) is not None:
        return why
    if routed(model) and not any(path.startswith(ATTENTION) for path in adapted(model, targets)):
        return "adapters on the MLPs of a model with routed experts are counted only together with some on attention"
    if sum(stack.count for stack in shape.stacks) < 2:  # its forward pass can decide: little of it is saved
        return "adapters on a single layer are not counted"
    if isinstance(shape.embed, Embedding) and shape.embed.vocab < SMALL_VOCABULARY * shape.embed.hidden:
        return "adapters are counted with vocabularies of twice the hidden size or more"
    return None


def facts(one: Trained) -> dict[str, Any]:
    """The adapters, as in the JSON."""
    targets, modules = lora_targets(one.recipe.lora or ""), one.subject.config.paths()
    layers = adapted_layers(one.subject, targets)
    on = list(dict.fromkeys(line.path for layer in layers for line in layer.matmuls))
    return {
        "rank": targets.rank,
        "dtype": one.recipe.adapter_dtype,
        "dropout": one.recipe.lora_dropout,
        "weights": one.recipe.weights_dtype or one.recipe.dtype,
        "products": [paths.short(path) for path in on],
        "modules": list(dict.fromkeys(modules.get(path, path) for path in on)),
        "params": int(one.step.adapter_bytes) // (units.dtype_bits(one.recipe.adapter_dtype) // 8),
        "bytes": one.step.adapter_bytes,
    }


def notes(one: Trained) -> list[str]:
    """What the adapters are, and whether they save more activations than full fine-tuning would."""
    from tfacct.reports.training import training_memory

    recipe, of, model = one.recipe, facts(one), one.subject
    modules, mixture = model.config.paths(), routed(model)
    layers = adapted_layers(model, lora_targets(recipe.lora or ""))
    names = ", ".join(dict.fromkeys(layer.name(modules) for layer in layers))
    others = "embeddings, norms, routers, experts and head" if mixture else "embeddings, norms and head"
    stored = (
        f"{NF4}; {others} in {recipe.dtype}" if recipe.weights_dtype == NF4 else recipe.weights_dtype or recipe.dtype
    )
    found = [
        f"Weights are frozen, in {stored}. Adapters of rank {of['rank']:,} in {of['dtype']} on {names}:"
        f" {of['params']:,} parameters, {units.binary(of['bytes'])}. Gradients and optimizer state are theirs alone."
    ]
    if model.architecture.classes is not None:
        found.append(
            "The classes' head is frozen, as without a task in peft."
            " With one, peft trains the modules classifier, score or qa_outputs too, which is not counted."
        )
    if mixture:
        found.append(
            "Routers and routed experts have no adapters: in their class they are parameters, not linear layers."
            " peft can adapt these too (target_parameters), which is not counted."
        )
    weights = recipe.weights_dtype if recipe.autocast else None
    full = replace(recipe, lora=None, adapter_dtype=FP32, lora_dropout=0.0, weights_dtype=weights)
    whole, saved = training_memory(model, one.work, full).step.saved_bytes(), one.step.kept()
    if saved > whole:
        in_fp32 = recipe.adapter_dtype != recipe.dtype and not recipe.autocast
        why = "each casts its input to fp32" if in_fp32 else "each saves a copy of its input"
        found.append(
            f"The adapters save more activations than full fine-tuning, {units.binary(saved)} against"
            f" {units.binary(whole)}: {why}."
        )
    if recipe.autocast:
        stays = ", and the cast is saved where its input needs a gradient" if recipe.recompute != "full" else ""
        found.append(f"Under torch.autocast each frozen weight is cast to {recipe.dtype} every time it is used{stays}.")
    if recipe.weights_dtype == NF4:
        largest = max(layer.inputs * layer.outputs for layer in linear_layers(model))
        found.append(
            f"A weight is unpacked to {recipe.dtype} for the gradient of its input, one at a time:"
            f" {units.binary(int(width(recipe.dtype).bytes(largest)))} at most."
        )
        recomputation = "" if recipe.recompute == "full" else f" and turns on {option('recompute', 'full')}"
        found.append(
            f"peft's prepare_model_for_kbit_training also casts all that is not in {NF4} to fp32"
            f" (+{units.binary(2 * unpacked_elements(model))}, not included){recomputation}."
        )
    return found
