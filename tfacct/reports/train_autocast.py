"""A training step under autocast over weights in fp32: what of it was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfacct.architecture.parts import Experts
from tfacct.base.spelling import option
from tfacct.loading.model import LoadedModel

if TYPE_CHECKING:
    from tfacct.training.recipe import Recipe

AUTOCAST, IN_CHUNKS, ADAPTED, SELECTIVE = (f"autocast{rest}" for rest in ("", "_chunked", "_lora", "_selective"))
"""Stand among a family's `trains` where a step under autocast was measured: at all, with a loss in chunks, with
adapters, with attention that runs again."""


def refusal(subject: LoadedModel, recipe: Recipe) -> str | None:
    """Reason why a step under autocast is not counted; None if it is."""
    trains, family = subject.config.trains, subject.family
    if AUTOCAST not in trains and any(isinstance(part, Experts) for part in subject.architecture.parts()):
        return (
            "autocast does not reach the products of experts: transformers casts what they read to the dtype of their"
            f" weights, fp32, which has not been measured on {family} beside a stream in fp32"
        )
    if AUTOCAST not in trains:
        return f"the training step of {family} has not been measured under autocast"
    asked = {
        f"adapters on {family}": recipe.lora is not None and ADAPTED not in trains,
        f"a loss in chunks on {family}": recipe.loss == "chunked" and IN_CHUNKS not in trains,
        f"a loss in chunks beside adapters on {family}": recipe.loss == "chunked"
        and recipe.lora is not None
        and IN_CHUNKS not in trains,
        f"attention that runs again on {family}": bool(recipe.recomputed_modules) and SELECTIVE not in trains,
    }
    both = next((name for name, so in asked.items() if so), None)
    if both is not None:
        return f"autocast has not been measured with {both}"
    if recipe.lora is None:
        return None
    if recipe.adapter_dtype != "fp32":
        return f"peft makes adapters in fp32 beside weights in fp32: leave {option('adapter_dtype')} out"
    from tfacct.reports import lora

    return lora.refusal(subject, recipe)
