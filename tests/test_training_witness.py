"""A training step against the transformers classes themselves, on meta dressed as CUDA: random small models.

Every byte that autograd saves is compared by the modules that asked for it, and the most bytes alive at any operator
of a step, to the byte.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import takewhile

import pytest

from tests.training_configs import DROP_INSIDE, drawn
from tfacct.accounts.timeline import peak, timeline
from tfacct.accounts.training import Step
from tfacct.loading.model import LoadedModel, subject
from tfacct.reports.training import refusal, step_of

pytest.importorskip("transformers")
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gpt2", "mixtral", "qwen3_moe", "gemma", "olmo2")
FURTHER = ("opt",)
ACCUMULATING = ("llama", "qwen2", "qwen3", "mistral", "opt")


def module(operation: str, paths: Mapping[str, str], block: str) -> str:
    """The class's module that an operation of ours runs in: its own, or the one that it is a part of.

    `block`: where a sublayer's dropout runs, if it is no part of the sublayer.
    """
    name = operation.removesuffix(".weight")
    if block and name in ("blocks.*.attn.drop", "blocks.*.mlp.drop"):
        return block
    if name in paths:
        return paths[name]
    owner, _, leaf = name.rpartition(".")
    if owner in paths:  # a dropout stands behind its module, steps of a norm are in it
        return parent(paths[owner]) if leaf == "drop" else paths[owner]
    while owner and not any(known.startswith(f"{owner}.") for known in paths):
        owner = parent(owner)
    inside = [path.split(".") for known, path in paths.items() if owner and known.startswith(f"{owner}.")]
    common = takewhile(lambda names: len({*names}) == 1, zip(*inside, strict=False))
    return ".".join(names[0] for names in common)


def parent(name: str) -> str:
    return name.rpartition(".")[0]


def starred(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def grouped(found: Iterable[tuple[int, Iterable[str]]], known: set[str]) -> Counter[frozenset[str]]:
    """Bytes by the modules that asked, each by itself or by what it is a part of (an activation, a dropout)."""
    groups: Counter[frozenset[str]] = Counter()
    for size, modules in found:
        groups[frozenset(nearest(starred(name), known) for name in modules)] += size
    return groups


def nearest(name: str, known: set[str]) -> str:
    while name and name not in known:
        name = parent(name)
    return name


def ours(model: LoadedModel, step: Step, known: set[str]) -> Counter[frozenset[str]]:
    paths = {**model.config.paths()}
    norm = next(path for name, path in paths.items() if name.count(".") == 2 and name.endswith("_norm"))
    block = "" if model.family in DROP_INSIDE else parent(norm)
    return grouped(
        (
            (section.count * step.bytes(section, [line]), [module(operation, paths, block) for operation in line.by])
            for section in step.run.sections
            for line in step.lines_of(section)
        ),
        known,
    )


def check(family: str, seed: int, *, accumulate: bool = False, hold_logits: bool = False) -> None:
    config, recipe, work = drawn(family, seed)
    recipe = replace(recipe, accumulate=accumulate, hold_logits=hold_logits)
    model = subject(family, config, {}, None)
    if refusal(model, recipe) is not None:
        recipe = replace(recipe, dtype="bf16")
    step = step_of(model, work, recipe)
    from tfacct.reference import keeping

    run = keeping.trainable(config, recipe.attention, recipe.dtype, checkpoint=recipe.checkpoint == "full")
    saved = keeping.kept(run, work.batch, work.tokens)
    held = {"accumulate": accumulate, "holds_logits": hold_logits}
    most = keeping.peak(run, work.batch, work.tokens, **held)
    assert step.kept() == sum(each.bytes for each in saved), (config, recipe, work)
    if recipe.checkpoint == "none":
        modules = {*model.config.paths().values()}
        known = modules | {parent(name) for name in modules}
        assert ours(model, step, known) == grouped(saved, known), (config, recipe, work)
    found = peak(instant for instant in timeline(step) if instant.name != "optimizer step")
    assert found.total == most.bytes, (config, recipe, work, found, most)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(8))
def test_a_step_is_the_classes_own(family: str, seed: int) -> None:
    check(family, seed)


@pytest.mark.parametrize("family", FURTHER)
@pytest.mark.parametrize("seed", range(6))
def test_a_step_of_a_further_family_is_its_classes_own(family: str, seed: int) -> None:
    check(family, seed, hold_logits=seed == 0)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES + FURTHER)
def test_many_steps_are_the_classes_own(family: str) -> None:
    for seed in range(100, 300):
        check(family, seed, hold_logits=seed % 5 == 0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(300, 303))
def test_logits_that_the_caller_keeps(family: str, seed: int) -> None:
    check(family, seed, hold_logits=True)


@pytest.mark.parametrize("family", ACCUMULATING)
@pytest.mark.parametrize("seed", range(300, 304))
def test_gradients_of_earlier_batches(family: str, seed: int) -> None:
    check(family, seed, accumulate=True, hold_logits=seed % 2 == 0)
