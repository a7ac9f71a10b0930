"""Norms over all heads together, where ranks divide heads: what is gathered for them, and what stays whole."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tfacct
from tests import test_sharding_train_experts as experts
from tests.test_sharding import MESHES, compared, random_config
from tests.test_sharding_train import peak_on_one_rank, saved_on_one_rank, two_compared
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.ledger.workload import Workload
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe

EXPERTS = {
    "olmoe": ("num_experts", "num_experts_per_tok", "intermediate_size"),
    "minimax_m2": ("num_local_experts", "num_experts_per_tok", "intermediate_size"),
}


@pytest.mark.parametrize("mesh", ["tp", "fsdp-sp"])
def test_every_collective_is_torchs(mesh: str) -> None:
    compared("olmo2", mesh, 1)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("kind", ["olmo2", "olmo3"])
def test_every_collective_of_random_configs_is_torchs(kind: str, mesh: str) -> None:
    for seed in range(2, 5):
        compared(kind, mesh, seed)


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("olmo-3-7b", {"tp": 8}),
        ("olmoe-1b-7b", {"tp": 2, "fsdp": 2, "ep": 4}),
        ("minimax-m2", {"tp": 2, "ep": 2}),
        ("olmo-2-1b", {"fsdp": 7}),
    ],
)
def test_a_published_plan_sends_what_is_counted(name: str, mesh: dict[str, Any]) -> None:
    found = tfacct.load(name).verify(shard=True, ctx=16, **mesh)
    assert found.agrees and found.rank_params == found.measured_rank_params


def heads(kind: str, seed: int, mesh: Mesh) -> dict[str, Any]:
    """A small config whose heads are most of it at some seeds."""
    rng = random.Random(f"heads {kind} {seed}")
    config = {**random_config("llama", rng, mesh), "model_type": kind, "max_position_embeddings": 512}
    sizes = {"vocab_size": mesh.tp * rng.choice((8, 20, 500)), "intermediate_size": mesh.tp * rng.choice((8, 16, 400))}
    window = {"sliding_window": 1000} if kind == "olmo3" else {}
    return {**config, **sizes, **window, "head_dim": 8 * rng.randint(1, 6), "tie_word_embeddings": False}


RECIPES: tuple[dict[str, Any], ...] = (
    {},
    {"recompute": "full"},
    {"gradient_accumulation": 2},
    {"attention": "eager"},
    {"recompute": "attention"},
    {"keep_logits": True},
)


def peak_compared(kind: str, seed: int, plan: Any = "torch") -> None:
    mesh, recipe = Mesh((2, 4)[seed % 2], plan=plan), RECIPES[seed % len(RECIPES)]
    config, tokens = heads(kind, seed, mesh), mesh.tp * (8, 40, 96)[seed % 3]
    one = trained(
        tfacct.load(config).loaded, Workload(tokens, tokens, 2), Recipe(optimizer="none", mesh=mesh, **recipe)
    )
    if not recipe:
        assert one.step.kept() == saved_on_one_rank(config, mesh, 2, tokens, "bf16")
    most = max(int(instant.total) for instant in one.instants if instant.name != "optimizer step")
    assert one.exact and most == peak_on_one_rank(config, mesh, 2, tokens, "bf16", recipe), (config, recipe)


@pytest.mark.parametrize(("kind", "seed"), [("olmo2", 0), ("olmo3", 1), ("olmo2", 3), ("olmo2", 4)])
def test_a_peak_among_ranks_is_what_is_alive_there(kind: str, seed: int) -> None:
    peak_compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["torch", "megatron"])
@pytest.mark.parametrize("kind", ["olmo2", "olmo3"])
def test_random_peaks_among_ranks_are_what_is_alive_there(kind: str, plan: str) -> None:
    for seed in range(5, 17):
        peak_compared(kind, seed, plan)


@pytest.mark.parametrize("seed", [1])
def test_a_rank_of_tp_and_fsdp_is_as_torchs_tracker_sees_it(seed: int) -> None:
    two_compared("olmo2", seed)


def with_experts(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(experts.SIZES, kind, EXPERTS[kind])

    def drawn(_: str, rng: random.Random, mesh: Mesh) -> dict[str, Any]:
        config = {**random_config("llama", rng, mesh), "model_type": kind}
        return config | ({"rotary_dim": 8} if kind == "minimax_m2" else {})

    def own(kind: str, seed: int) -> Any:
        config, *others = known(kind, seed)
        if kind == "olmoe":
            config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
        return config, *others

    known = experts.drawn
    monkeypatch.setattr(experts, "random_config", drawn)
    monkeypatch.setattr(experts, "drawn", own)
    experts.compared(kind, seed)


@pytest.mark.parametrize(("kind", "seed"), [("olmoe", 1), ("minimax_m2", 2)])
def test_experts_beside_them_are_transformers_own(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with_experts(kind, seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXPERTS)
def test_experts_of_random_ranks_are_transformers_own(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3, 11):
        with monkeypatch.context() as patched:
            with_experts(kind, seed, patched)


NEARLY = 0.05
"""The most by which peaks under `sp` differed."""


@pytest.mark.parametrize("seed", [0, pytest.param(5, marks=pytest.mark.slow), pytest.param(7, marks=pytest.mark.slow)])
def test_a_peak_among_ranks_that_divide_tokens_is_nearly_that(seed: int) -> None:
    mesh = Mesh((2, 4)[seed % 2], sp=True)
    config, tokens = heads("olmo2", seed, mesh), mesh.tp * 8
    one = trained(tfacct.load(config).loaded, Workload(tokens, tokens, 2), Recipe(optimizer="none", mesh=mesh))
    assert one.step.kept() == saved_on_one_rank(config, mesh, 2, tokens, "bf16") and not one.exact
    seen = peak_on_one_rank(config, mesh, 2, tokens, "bf16", {})
    assert abs(seen / one.peak.total - 1) < NEARLY


def test_olmo_2_by_hand() -> None:
    model = tfacct.load("olmo-2-1b")  # 16 blocks of 16 heads of 128: as wide as the stream of 2,048
    sent = {(one["when"], one["kind"]): one["calls"] for one in model.comms(tp=8, train=True, ctx=64).collectives}
    # Queries, keys and values are gathered, and backward what attention gave; sums of o, down and the table, and of the
    # gradients of what q, k, v, gate and up read, and the head.
    assert sent == {
        ("forward", "all-gather"): 3 * 16,
        ("forward", "all-reduce"): 2 * 16 + 1,
        ("backward", "all-gather"): 16,
        ("backward", "all-reduce"): 5 * 16 + 1,
    }
    assert model.memory(ctx=4096, tp=8).kv_cache_bytes == model.memory(ctx=4096).kv_cache_bytes
    whole, rank = model.flops(ctx=1024).total, model.flops(ctx=1024, tp=8).total
    pairs = 2 * 2 * 16 * 1024 * 1024 * 2048  # scores and values of 16 blocks, on each rank
    assert rank == (whole - pairs) // 8 + pairs
    norms = 16 * (2 * 2048 + 2 * 2048) + 2048
    assert model.params(tp=8).rank_params == (1_484_916_736 - norms) // 8 + norms


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("memory minimax-m2 --tp 16", "--tp 16 does not divide K = 8 (key/value heads) hint: sizes that divide all"),
        ("comms olmo-2-1b --tp 2 --cp 2 --ctx 64", "a norm over all heads together beside --tp and --cp 2"),
        ("train olmo-2-1b --tp 2 --lora 8", "adapters beside a norm over all heads together are not counted"),
        ("formula olmo-2-1b --of kv --tp 2", "which is not written in letters"),
    ],
)
def test_what_is_not_counted_is_refused_by_name(run: Any, arguments: str, said: str) -> None:
    ran = run(*arguments.split())
    assert ran.code == 2 and said in " ".join(ran.err.split()), ran.err


def test_what_is_whole_is_said(run: Any) -> None:
    for command in ("memory", "kv", "train", "comms", "flops"):
        words = " ".join(run(command, "olmo-2-1b", "--tp", "2").out.split())
        assert "attention and what is kept of keys and values are whole on each rank" in words
    words = " ".join(run("kv", "olmo-2-1b", "llama-3.2-1b", "--tp", "2").out.split())
    assert "A rank keeps keys and values of its heads. Those of olmo-2-1b are whole on every rank" in words
    assert "K N are divided" in run("comms", "olmo-2-1b", "--tp", "2", "--ctx", "64").out
    words = " ".join(run("train", "olmo-2-1b", "--fsdp", "2", "--weights", "fp32", "--ctx", "64").out.split())
    assert "Needs ≈" in words and "Angles in fp32" in words
