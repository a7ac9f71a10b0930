"""Models whose training step is supported."""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Request
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.loading.skipped import Skipped
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import of_another_size, refusal


def trainable(models: Sequence[LoadedModel], recipe: Recipe) -> tuple[list[LoadedModel], list[Skipped]]:
    """Models whose step is supported, and the others. A single model passes: its error with the reason comes later."""
    if len(models) == 1:
        return list(models), []
    reasons: dict[str, list[LoadedModel]] = {}
    for model in models:
        reasons.setdefault(refusal(model, recipe) or "", []).append(model)
    answered = reasons.pop("", [])
    if not answered:
        raise UsageError(f"none of these training steps is supported: {'; '.join(reasons)}")
    others = [model for group in reasons.values() for model in group]
    return answered, Skipped.of(others, "training step not measured; count one model to see why")


def of_own_size(models: list[LoadedModel], request: Request) -> tuple[list[LoadedModel], list[Skipped]]:
    """Models whose class supports a step of this size, and the others; all models if no size is given."""

    def takes(model: LoadedModel) -> bool:
        context = selection.request_for(model, request).ctx
        return selection.takes_context(model, context) and not of_another_size(
            model, selection.workload(model, request)
        )

    fitting = [model for model in models if takes(model)]
    if not fitting:
        return models, []
    others = [model for model in models if model not in fitting]
    return fitting, Skipped.of(others, "training supports only images of the config's size")
