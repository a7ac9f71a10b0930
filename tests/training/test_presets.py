"""Training steps of every preset that has one: parameters, optimizer state and counts. Kind: law."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tests.families import presets_asked
from tests.helpers.models import by_kind, kind_of_preset
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.loading import presets
from tfacct.training.lora import adapter_parameters, lora_targets
from tfacct.training.model_step import stored
from tfacct.training.optimizers import optimizer
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import reads_images, refusal

TRAINED = [name for name in presets_asked() if refusal(presets.load(name), Recipe()) is None]
"""Presets whose training step is counted."""
KINDS = by_kind(TRAINED, kind_of_preset)
RECIPES: tuple[dict[str, Any], ...] = (
    *({"dtype": "fp32"}, {"recompute": "full"}, {"recompute": "attention"}, {"lora": 8}, {"loss": "chunked"}),
    *({"weights_dtype": "fp32"}, {"attention": "eager"}, {"fsdp": 8}),
    {"gradient_accumulation": 2, "keep_logits": True},
)
LEVERS: dict[str, tuple[Any, ...]] = {
    "dtype": ("bf16", "fp16", "fp32"),
    "recompute": ("none", "full", "attention"),
    "attention": ("sdpa", "eager"),
    "loss": ("whole", "chunked"),
    "lora": (None, "8", "16:q_proj,v_proj"),
    "weights_dtype": (None, "fp32", "nf4"),
    "gradient_accumulation": (1, 2),
}
"""All recipes that the slow sweep asks for."""


def size_of(name: str, ctx: int) -> dict[str, Any]:
    """The workload of a preset: a class that reads images trains on one size of them."""
    model = presets.load(name)
    return {"batch": 2} if reads_images(model) else {"batch": 2, "ctx": min(ctx, model.context)}


@pytest.mark.parametrize("name", KINDS)
def test_adamw_stores_two_numbers_for_each_trained_parameter(name: str) -> None:
    """The elements are those of `params`, which knows of no fused tensors."""
    model = load(name)
    tensors = model.loaded.ledger.tensors()
    frozen = [one for one in tensors if one.path.endswith(".routing.bias")]  # corrects the choice of experts
    frozen += [one for one in tensors if one.parameter.table is not None and not one.parameter.table.trained]  # sines
    elements = model.params().total - sum(int(one.count * one.elements) for one in frozen)
    count = sum(one.copies for one in stored(model.loaded))
    assert optimizer("adamw").state_bytes(stored(model.loaded), 2) == 2 * 2 * elements + 4 * count


def numbers(found: Any, at: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a JSON document, with where they are."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from numbers(value, f"{at}.{key}")
    elif isinstance(found, list | tuple):
        for number, value in enumerate(found):
            yield from numbers(value, f"{at}.{number}")
    elif isinstance(found, int | float):
        yield at, found


def check_counts(name: str, **recipe: Any) -> bool:
    """No number is below 0, and saved tensors are as many bytes as their sum says. False where no step is counted."""
    try:
        report = load(name).train(**recipe, **size_of(name, 67))
    except TfacctError:
        return False
    negative = [(at, number) for at, number in numbers(json.loads(report.to_json())) if number < 0]
    assert not negative, (name, recipe, negative[:4])
    assert sum(line["bytes"] for line in report.lines) == report.saved_bytes, (name, recipe)
    return True


@pytest.mark.parametrize("name", KINDS)
def test_no_number_of_a_preset_is_negative(name: str) -> None:
    """A convolution that pads its tokens saves one tensor, longer than they are, and not one less another."""
    assert check_counts(name)
    check_counts(name, **RECIPES[len(name) % len(RECIPES)])


@pytest.mark.parametrize("name", KINDS)
def test_adapters_of_a_step_are_those_that_are_counted_without_one(name: str) -> None:
    model = presets.load(name)
    if refusal(model, Recipe(lora="6")) is None:
        adapters = load(name).train(lora=6, **size_of(name, 8)).lora_adapters
        assert adapters is not None and adapters["params"] == adapter_parameters(model, lora_targets("6")) != 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_no_number_of_any_recipe_is_negative(name: str) -> None:
    counted = 0
    for levers in product(*LEVERS.values()):
        recipe = dict(zip(LEVERS, levers, strict=True))
        if recipe["weights_dtype"] != "nf4" or recipe["lora"] is not None:
            counted += check_counts(name, **recipe)
    assert counted
