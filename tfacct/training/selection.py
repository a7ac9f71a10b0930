"""Models whose training step is supported."""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Request
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.loading.skipped import Skipped
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import OTHER_IMAGES, of_another_size, refusal


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
    return answered, Skipped.of(others, "training step not measured; name one model alone to see why")


def of_own_size(models: list[LoadedModel], request: Request) -> tuple[list[LoadedModel], list[Skipped]]:
    """Models whose class runs a step of this size, and the others; all models if none does."""

    def reason(model: LoadedModel) -> str:
        context = selection.request_for(model, request).ctx
        if not selection.takes_context(model, context):
            return OTHER_IMAGES
        work = selection.workload(model, request)
        past = "the context exceeds the position embedding" if model.past_positions(work) else ""
        return OTHER_IMAGES if of_another_size(model, work) else past

    reasons: dict[str, list[LoadedModel]] = {}
    for model in models:
        reasons.setdefault(reason(model), []).append(model)
    if not (fitting := reasons.pop("", [])):
        return models, []
    return fitting, [skipped for why, others in reasons.items() for skipped in Skipped.of(others, why)]
