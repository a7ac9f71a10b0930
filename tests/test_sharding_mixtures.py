"""Experts beside sequence parallelism: between a gather of the stream and a scatter of their sums, or whole, on the
tokens of a rank. Against the classes' own modules under DTensor, in a process group that sends nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tfacct
from tests import test_sharding_train_exchange as exchange
from tests import test_sharding_train_experts as experts
from tests.test_sharding_latent_tokens import given_places
from tests.test_sharding_train import peak_on_one_rank
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe

TOKENS: dict[str, Any] = {"sp": True, "ctx": 64, "batch": 2, "shard": True}
MESHES = [{"tp": 2}, {"tp": 4, "fsdp": 2}, {"tp": 2, "ep": 2}, {"tp": 2, "fsdp": 2, "ep": 4}]


def compared(name: str, mesh: dict[str, Any]) -> None:
    found = tfacct.load(name).verify(**TOKENS, **mesh)
    assert found.agrees and found.plan == "torch" and found.rank_params == found.measured_rank_params


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("mixtral-8x7b", {"tp": 4, "fsdp": 2}),
        ("mixtral-8x7b", {"tp": 2, "fsdp": 4, "ep": 4}),  # two ranks have each expert
        ("qwen1.5-moe-a2.7b", {"tp": 2}),  # with a gated network beside them
        ("qwen1.5-moe-a2.7b", {"tp": 2, "ep": 2}),
        ("olmoe-1b-7b", {"tp": 2}),  # and heads that are gathered
    ],
)
def test_experts_beside_divided_tokens_send_what_is_counted(name: str, mesh: dict[str, Any]) -> None:
    compared(name, mesh)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "qwen1.5-moe-a2.7b", "glm-4.5-air", "dots.llm1", "minimax-m2"])
def test_every_family_sends_what_is_counted(name: str, mesh: dict[str, Any]) -> None:
    compared(name, mesh)


def rows(**mesh: Any) -> dict[tuple[str, str, str], list[tuple[int, int]]]:
    """Calls and bytes of mixtral-8x7b at 4,096 tokens, by axis, pass and kind."""
    found: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for one in tfacct.load("mixtral-8x7b").comms(train=True, ctx="4k", sp=True, **mesh).collectives:
        found.setdefault((one["over"], one["when"], one["kind"]), []).append((one["calls"], one["bytes"]))
    return found


STREAM = 4096 * 4096 * 2
"""Bytes of mixtral-8x7b's stream at 4,096 tokens in bf16. It has 32 blocks, and a router of 8 experts in each."""


def test_mixtral_by_hand() -> None:
    sent = rows(tp=8)
    for when in ("forward", "backward"):  # attention and experts of each block; the table, or the head
        assert sent["tp", when, "all-gather"] == [(33, 33 * STREAM), (32, 32 * STREAM)]
        assert sent["tp", when, "reduce-scatter"] == [(33, 33 * STREAM // 8), (32, 32 * STREAM // 8)]
    # Norms, two in each block and the last, and routers.
    assert sent["tp", "backward", "all-reduce"] == [(65 + 32, 2 * (65 * 4096 + 32 * 8 * 4096))]


def test_tokens_of_a_rank_go_to_their_experts_without_a_gather() -> None:
    sent = rows(tp=8, ep=8)
    pairs = 2 * STREAM // 8  # of the rank's part of the tokens, to two experts each
    assert sent["ep", "forward", "all-to-all"] == [(96, 32 * (2 * pairs + 8 * 8))]
    assert sent["ep", "backward", "all-to-all"] == [(64, 32 * 2 * pairs)]
    for when in ("forward", "backward"):
        assert sent["tp", when, "all-gather"] == [(33, 33 * STREAM)]


def test_a_rank_stores_what_it_does_without() -> None:
    model = tfacct.load("mixtral-8x7b")
    assert model.comms(tp=8, sp=True, ctx=64, train=True).rank_params == model.params(tp=8).rank_params


RECIPES: tuple[dict[str, Any], ...] = (
    {},
    {"recompute": "full", "gradient_accumulation": 2},
    {"gradient_accumulation": 2},
    {"recompute": "attention"},
    {"recompute": "full"},
    {"keep_logits": True},
)
SHARED = {"n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}


def step(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, int]:
    """A rank's step, wide at odd seeds, and the most bytes alive in it; glm4_moe has a dense block in front."""
    monkeypatch.setitem(experts.SIZES, "glm4_moe", ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"))
    known = experts.random_config
    with monkeypatch.context() as patched:
        patched.setattr(experts, "random_config", lambda _, *how: {**known("llama", *how), "model_type": kind})
        config, recipe, work = experts.drawn(kind, seed)
    assert recipe.mesh is not None
    config["num_experts_per_tok"] = 1 + seed % 3
    if kind == "glm4_moe":
        config |= {**SHARED, "intermediate_size": 24 * recipe.mesh.tp}
    if seed % 2:
        config["hidden_size"] *= 3
        config["vocab_size"] = config["hidden_size"]
    how, mesh = RECIPES[seed % len(RECIPES)], replace(recipe.mesh, sp=True)
    one = trained(tfacct.load(config).loaded, work, Recipe(optimizer="none", mesh=mesh, **how))
    return one, peak_on_one_rank(config, mesh, int(work.batch), int(work.tokens), "bf16", how)


def peak_of(one: Any) -> int:
    return max(int(each.total) for each in one.instants if each.name != "optimizer step")


@pytest.mark.parametrize(("kind", "seed"), [("mixtral", 7), ("mixtral", 2), ("qwen3_moe", 3), ("qwen3_moe", 5)])
def test_a_peak_beside_divided_tokens_is_what_is_alive(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one, most = step(kind, seed, monkeypatch)
    assert peak_of(one) == most, (one.recipe, one.peak)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_random_peaks_beside_divided_tokens_are_what_is_alive(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8, 26):
        one, most = step(kind, seed, monkeypatch)
        exactly = not one.recipe.accumulates
        assert peak_of(one) == most if exactly else abs(most / peak_of(one) - 1) < NEARLY, (seed, one.recipe, one.peak)


NEARLY = 0.1


@pytest.mark.parametrize("kind", ["qwen2_moe", "glm4_moe"])
def test_peaks_beside_a_shared_network_are_nearly_that(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (1, 4):
        one, most = step(kind, seed, monkeypatch)
        assert not one.exact and abs(most / peak_of(one) - 1) < NEARLY, (one.recipe, one.peak)


def test_a_published_model_is_counted(run: Any) -> None:
    rank = tfacct.load("mixtral-8x7b").train(ctx="2k", tp=8, sp=True)
    assert rank.exact and rank.saved_bytes < tfacct.load("mixtral-8x7b").train(ctx="2k", tp=8).saved_bytes
    sent = tfacct.load("mixtral-8x7b").comms(tp=8, sp=True, train=True, ctx="2k").sent_bytes
    assert rank.sent_bytes == sent
    words = " ".join(run("train", "glm-4.5-air", "--tp", "8", "--sp", "--ctx", "1k").out.split())
    assert "Needs ≈ " in words and "within 10% of this under the same plans" in words


def divided(config: dict[str, Any], mesh: Mesh, _: bool) -> Any:
    """The class with transformers' own all-to-all of the tokens of a rank, and torch's plan for the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module
    from transformers.distributed import DistributedConfig
    from transformers.distributed.expert_parallel import apply_expert_parallelism

    from tfacct.meta.model import build_model
    from tfacct.reference import ranks

    model = build_model(tfacct.load(config).loaded.of_class, "sdpa", "bf16")
    *_, plan, _ = model._resolve_parallel_plans(DistributedConfig(tp_size=mesh.tp, fsdp_size=1, ep_size=mesh.ep))
    both = init_device_mesh("cpu", (mesh.tp, 1), mesh_dim_names=("ranks", "batch"))
    parallelize_module(model, both["ranks"], ranks.plan_of(model, sp=True, together=True, whole=True))
    apply_expert_parallelism(model, both["ranks"], both["batch"], plan)
    return given_places(model)


def whole_compared(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh(tp=(2, 4)[seed % 2], ep=(2, 4)[seed % 2], sp=True)
    config, work = exchange.drawn(kind, mesh, seed)
    one = trained(tfacct.load(config).loaded, work, Recipe(optimizer="none", mesh=mesh))
    monkeypatch.setattr(exchange, "divided", divided)
    assert (one.step.kept(), peak_of(one)) == exchange.witnessed(config, mesh, work), (config, work)


@pytest.mark.parametrize(("kind", "seed"), [("mixtral", 4), ("qwen3_moe", 1)])
def test_whole_experts_keep_the_tokens_of_a_rank(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_compared(kind, seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_random_whole_experts_keep_the_tokens_of_a_rank(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5, 15):
        whole_compared(kind, seed, monkeypatch)
