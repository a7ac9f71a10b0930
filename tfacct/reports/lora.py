"""What a report says of LoRA: which recipes are counted, the adapters, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfacct.architecture.parts import Embedding
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
)
from tfacct.training.recipe import FP32, Recipe

if TYPE_CHECKING:
    pass

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
    targets, modules = lora_targets(recipe.lora or ""), model.config.paths()
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


def names(model: LoadedModel, recipe: Recipe) -> str:
    """The layers with adapters, by their own names."""
    modules = model.config.paths()
    layers = adapted_layers(model, lora_targets(recipe.lora or ""))
    return ", ".join(dict.fromkeys(layer.name(modules) for layer in layers))
