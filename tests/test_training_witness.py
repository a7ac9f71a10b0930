"""A training step against the transformers classes themselves, on meta dressed as CUDA: random small models.

Every byte that autograd saves is compared by the modules that asked for it, and the most bytes alive at any operator
of a step, to the byte.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest

from tfacct.accounts.timeline import peak, timeline
from tfacct.accounts.training import Step
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel, subject
from tfacct.reports.training import Recipe, refusal, step_of

pytest.importorskip("transformers")
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gpt2", "mixtral", "qwen3_moe", "gemma", "olmo2")


def drawn(family: str, seed: int) -> tuple[dict[str, Any], Recipe, Workload]:
    """A small model of a family, and how a step of it is taken."""
    pick = random.Random(f"{family} {seed}").choice
    config: dict[str, Any] = {"model_type": family, "vocab_size": pick([11, 50, 101, 300])}
    layers, wide, heads = pick([1, 2, 3, 4]), pick([16, 70, 200]), pick([8, 16, 24])
    if family == "gpt2":
        drop = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), pick([0.0, 0.1]))
        count = pick([2, 3, 4])
        config |= {
            "n_embd": count * heads,
            "n_head": count,
            "n_layer": layers,
            "n_inner": wide,
            "n_positions": 64,
            **drop,
        }
        config |= {"activation_function": pick(["gelu_new", "gelu", "relu"])}
    else:
        groups, each = pick([1, 2, 3]), pick([1, 2, 4])
        config |= {"num_attention_heads": groups * each, "num_key_value_heads": groups, "num_hidden_layers": layers}
        config |= {"hidden_size": groups * each * pick([4, 7, 10, 24]), "intermediate_size": wide, "head_dim": heads}
        config |= {"max_position_embeddings": 64, "attention_dropout": pick([0.0, 0.0, 0.1])}
    if family == "qwen2":  # its class knows no head_dim
        config |= {"hidden_size": config["num_attention_heads"] * config.pop("head_dim")}
    if family == "olmo2":
        config |= {"attention_bias": pick([True, False]), "pad_token_id": 0, "eos_token_id": 1}
        config |= {"hidden_size": config["num_attention_heads"] * config.pop("head_dim")}
    if family == "gemma":
        config |= {"hidden_act": pick(["gelu", "gelu_pytorch_tanh"]), "attention_bias": pick([True, False])}
        config |= {"pad_token_id": 0}
    if family == "qwen3_moe":
        config |= {"hidden_size": pick([24, 40, 64, 120]), "moe_intermediate_size": pick([16, 72, 200])}
        config |= {"num_experts": pick([3, 5]), "num_experts_per_tok": pick([1, 2])}
        config |= {"norm_topk_prob": pick([True, False]), "attention_bias": pick([True, False])}
    if family in ("mistral", "mixtral"):
        config |= {"sliding_window": None}
    if family == "mixtral":  # grouped products take rows of 16 bytes
        config |= {"hidden_size": pick([24, 40, 64, 120]), "intermediate_size": pick([16, 72, 200])}
        config |= {"num_local_experts": pick([3, 5]), "num_experts_per_tok": pick([1, 2])}
    config |= {"tie_word_embeddings": pick([True, False])}
    recipe = Recipe(pick(["bf16", "fp32"]), "none", pick(["none", "none", "full"]), pick(["sdpa", "eager"]))  # type: ignore[arg-type]
    tokens = pick([5, 17, 33])
    return config, recipe, Workload(context=tokens, tokens=tokens, batch=pick([1, 2, 3]))


def module(operation: str, paths: Mapping[str, str]) -> str:
    """The class's module that an operation of ours runs in: its own, or the one that it is a part of."""
    name = operation.removesuffix(".weight")
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
    return grouped(
        (
            (section.count * step.bytes(section, [line]), [module(operation, paths) for operation in line.by])
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


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_steps_are_the_classes_own(family: str) -> None:
    for seed in range(100, 200):
        check(family, seed)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(300, 303))
def test_logits_that_the_caller_keeps(family: str, seed: int) -> None:
    check(family, seed, hold_logits=True)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize("seed", range(300, 304))
def test_gradients_of_earlier_batches(family: str, seed: int) -> None:
    check(family, seed, accumulate=True, hold_logits=seed % 2 == 0)
