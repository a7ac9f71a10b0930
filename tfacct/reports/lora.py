"""What a report says of LoRA: which recipes are counted, the adapters, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfacct.architecture.parts import Embedding
from tfacct.base import units
from tfacct.base.errors import TfacctError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.loading.model import LoadedModel
from tfacct.training.adapters import (
    ATTENTION,
    adapted,
    adapted_layers,
    adapters_of,
    linear_layers,
    lora_targets,
    routed,
    unknown_targets,
    unpacked_elements,
)
from tfacct.training.recipe import FP32, Recipe

if TYPE_CHECKING:
    from tfacct.training.memory import TrainingMemory

SMALL_VOCABULARY = 2
"""A vocabulary of fewer than so many hidden sizes: the forward pass of the loss would need more than its gradient."""


def on_attention(model: LoadedModel, text: str) -> list[str]:
    """The same rank on attention's linear layers, together with those that `text` names, and alone."""
    modules, targets = model.config.hf_module_paths(), lora_targets(text)
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
    if (why := unknown_targets(model, targets)) is not None:
        return why
    if routed(model) and not any(path.startswith(ATTENTION) for path in adapted(model, targets)):
        return "adapters on the MLPs of a model with routed experts are counted only together with some on attention"
    if sum(stack.count for stack in shape.stacks) < 2:  # its forward pass can decide: little of it is saved
        return "adapters on a single layer are not counted"
    if isinstance(shape.embed, Embedding) and shape.embed.vocab < SMALL_VOCABULARY * shape.embed.hidden:
        return "adapters are counted with vocabularies of twice the hidden size or more"
    return None


def facts(model: LoadedModel, recipe: Recipe) -> dict[str, Any]:
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


# Notes of a step's memory.


def size(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    """How large the adapters are."""
    own = facts["lora_adapters"]
    words = f"{own['params']:,} parameters, {units.binary(own['bytes'])}"
    return f"Adapters: rank {own['rank']} in {own['dtype']}, {words}. Other weights are frozen."


def places(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    """Which layers have adapters, by their own names."""
    modules = one.model.config.hf_module_paths()
    layers = adapted_layers(one.model, lora_targets(one.recipe.lora or ""))
    named = ", ".join(dict.fromkeys(layer.name(modules) for layer in layers))
    experts = "; not on routers and routed experts (peft: target_parameters)" if routed(one.model) else ""
    return f"Adapters are on {named}{experts}."


def saves_more(one: TrainingMemory, facts: dict[str, Any]) -> str:
    """LoRA next to full fine-tuning, if it saves more."""
    from tfacct.reports.training import training_memory

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


def prepared(one: TrainingMemory, facts: dict[str, Any]) -> str:  # noqa: ARG001
    """What peft's preparation of 4-bit weights adds."""
    more = units.binary(2 * unpacked_elements(one.model))
    also = "" if one.recipe.recompute == "full" else f", and sets {option('recompute', 'full')}"
    return f"peft's prepare_model_for_kbit_training casts 16-bit weights to fp32 (+{more}, not included){also}."
