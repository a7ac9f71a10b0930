"""A training step on ranks that have heads in common, or widths of which the last ones have less: the first rank's."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import tfacct
from tests.conftest import Ran
from tests.test_sharding import fake_ranks, random_config
from tests.test_sharding_lora import local, witnessed
from tests.test_sharding_train_experts import divided
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.ledger.workload import Workload
from tfacct.reports import mesh as meshes
from tfacct.reports.train_ranks_said import OF_UNEVEN
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe


def drawn(kind: str, seed: int) -> tuple[dict[str, Any], Recipe, Workload]:
    mesh, rng = Mesh(tp=(2, 4)[seed % 2]), random.Random(f"uneven {kind} {seed}")
    config = {**random_config(kind, rng, mesh), "head_dim": 8 * rng.randint(1, 3), "max_position_embeddings": 512}
    config |= {"num_hidden_layers": rng.randint(2, 3), "tie_word_embeddings": False}
    config["vocab_size"] = mesh.tp * (2 * config["hidden_size"] + rng.choice((0, 50, 500)))
    config["intermediate_size"] = mesh.tp * rng.choice((8, 100, 700)) - rng.randint(1, mesh.tp - 1)
    tokens = mesh.tp * rng.choice((8, 40, 96))
    recipe = Recipe(optimizer="none", mesh=mesh, recompute="full" if seed % 3 == 2 else "none")
    return config, recipe, Workload(tokens, tokens, rng.randint(1, 2))


def compared(kind: str, seed: int) -> None:
    config, recipe, work = drawn(kind, seed)
    one = trained(tfacct.load(config).loaded, work, recipe)
    assert recipe.mesh is not None
    with fake_ranks(recipe.mesh.tp):
        model = divided(config, recipe, ".mlp.")  # theirs runs where a width is no multiple
        kept, most, _ = witnessed(model, int(work.batch), int(work.tokens))
        stored = sum(2 * local(weight).numel() for weight in model.parameters())
    assert one.step.parameters == stored
    assert one.step.kept() == kept, (config, recipe)
    ours = max(int(each.total) for each in one.instants if each.name != "optimizer step")
    assert not one.exact and ours <= most <= (1 + OF_UNEVEN / 100) * ours, (config, recipe)


@pytest.mark.parametrize(("kind", "seed"), [("llama", 0), ("llama", 5), ("qwen3", 1)])
def test_the_first_rank_of_an_uneven_width_is_transformers(kind: str, seed: int) -> None:
    compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_first_ranks_of_random_uneven_widths_are_transformers(kind: str) -> None:
    for seed in range(6, 18):
        compared(kind, seed)


@pytest.mark.parametrize("more", [{}, {"sp": True}, {"fsdp": 2}, {"pp": 2}, {"plan": "megatron"}])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_rank_with_a_copied_head_holds_what_one_with_its_own_does(kind: str, more: dict[str, Any]) -> None:
    """A model with as many key/value heads as ranks, whose ranks were compared with torch's, has the same shapes."""
    config = {
        **random_config(kind, random.Random(kind), Mesh()),
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "hidden_size": 64,
        "intermediate_size": 96,
        "vocab_size": 400,
        "num_hidden_layers": 2,
        "max_position_embeddings": 512,
        "head_dim": 8,
    }
    mesh, work = Mesh(tp=4, **more), Workload(64, 64, 2)
    models = (tfacct.load({**config, "num_key_value_heads": heads}).loaded for heads in (2, 4))
    few, many = (trained(model, work, Recipe(mesh=mesh)) for model in models)
    assert few.instants == many.instants and few.step.kept() == many.step.kept()
    sums = Counter[str]()
    for heads, one in ((2, few), (4, many)):
        lines = meshes.by_stage(one.subject, mesh, work.axes(), 16, train=True)[0]
        sums[str(heads)] = sum(line.sent for line in lines if line.because == "G")
    assert sums["4"] == 0 < sums["2"]


def test_llama_70b_on_16_ranks_by_hand() -> None:
    rank = tfacct.load("llama-3.1-70b").train(ctx="4k", tp=16, sp=True)
    # 80 blocks: q and o of 4 of 64 heads, k and v of one of 8, a sixteenth of the networks; two norms.
    block = 8192 * 128 * (2 * 4 + 2 * 1) + 3 * 8192 * 1792 + 2 * 8192
    assert rank.weights_bytes == 2 * (80 * block + 2 * 8192 * 8016 + 8192) and rank.exact
    assert any("Of 8 key/value heads each is on 2 ranks" in note for note in rank.notes)


def test_adapters_of_heads_in_common_are_refused(run: Any) -> None:
    for model, tp in (("llama-3.1-70b", "16"), ("qwen3-8b", "16")):
        ran: Ran = run("train", model, "--tp", tp, "--lora", "8", "--ctx", "1k")
        words = " ".join(ran.err.split())
        assert ran.code == 2 and "adapters are counted where --tp divides heads and networks evenly" in words
        assert "sizes that divide all: 1, 2, 4, 8" in words
