"""Latent attention beside sequence parallelism: it reads the stream gathered and makes latents of all tokens on each
rank. Against the classes' own modules under torchtitan's plan of DeepSeek-V3, in a process group that sends nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tfacct
from tests import test_sharding_train_latent as latent
from tfacct.ledger.workload import Workload
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe


def divided(config: dict[str, Any], recipe: Recipe) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    from tfacct.meta.model import build_model
    from tfacct.reference import ranks

    assert recipe.mesh is not None
    of_class = tfacct.load(config).loaded.of_class
    model = build_model(of_class, recipe.attention, "bf16", recompute=recipe.recompute)
    own = init_device_mesh("cpu", (recipe.mesh.tp,), mesh_dim_names=("tp",))
    parallelize_module(model, own, ranks.plan_of(model, sp=True, together=True))
    if config["tie_word_embeddings"]:
        model.lm_head.weight = model.model.embed_tokens.weight
    return given_places(model)


def given_places(model: Any) -> Any:
    """A model that its caller gives the positions, which stay."""
    import torch

    forward, places = model.forward, dict[int, Any]()

    def run(*args: Any, **named: Any) -> Any:
        tokens = named["input_ids"].shape[1]
        if tokens not in places:
            places[tokens] = torch.arange(tokens, device="meta")[None]
        return forward(*args, position_ids=places[tokens], **named)

    model.forward = run
    return model


def drawn(kind: str, seed: int) -> tuple[dict[str, Any], Recipe, Workload]:
    config, recipe, work = latent.drawn(kind, seed)
    assert recipe.mesh is not None
    return config, replace(recipe, mesh=replace(recipe.mesh, sp=True), attention="sdpa"), work


def compared(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config, recipe, work = drawn(kind, seed)
    one = trained(tfacct.load(config).loaded, work, recipe)
    monkeypatch.setattr(latent, "divided", divided)
    kept, most, sent = latent.witnessed(config, recipe, work)
    assert one.step.kept() == kept, (config, recipe, work)
    assert max(int(each.total) for each in one.instants if each.name != "optimizer step") == most, (config, recipe)
    if recipe.recompute == "none":  # what blocks send when they run again is not counted
        assert latent.sends(one) == sent, (config, recipe)


@pytest.mark.parametrize(("kind", "seed"), [("youtu", 1), ("deepseek_v3", 2), ("deepseek_v3", 22)])
def test_latents_of_gathered_tokens_are_as_the_class_has_them(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared(kind, seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["youtu", "deepseek_v3"])
def test_random_latents_of_gathered_tokens_are_as_the_class_has_them(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(4, 34):
        compared(kind, seed, monkeypatch)


def verified(name: str, **mesh: int) -> None:
    found = tfacct.load(name).verify(sp=True, ctx=64, batch=2, shard=True, **mesh)
    assert found.agrees and found.rank_params == found.measured_rank_params


def test_latents_beside_divided_tokens_send_what_is_counted() -> None:
    verified("youtu-llm-2b", tp=4, fsdp=2)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"tp": 2}, {"tp": 2, "ep": 2}, {"tp": 2, "fsdp": 2, "ep": 4}], ids=str)
@pytest.mark.parametrize("name", ["deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "kimi-k2", "glm-4.7-flash"])
def test_latents_of_every_family_send_what_is_counted(name: str, mesh: dict[str, int]) -> None:
    verified(name, **mesh)


def test_deepseek_by_hand(run: Any) -> None:
    every = tfacct.load("deepseek-v3").comms(tp=8, sp=True, train=True, ctx="1k").collectives
    stream = 1024 * 7168 * 2
    # 61 blocks gather for attention, 3 dense ones for their networks, and the head; mixtures are 58.
    whole = [one["calls"] for one in every if (one["when"], one["kind"]) == ("forward", "all-gather")]
    assert sorted(whole) == [58, 61 + 3 + 1]
    # Gradients of both latents and of the rotated part of keys are whole: none is scattered in front of attention.
    latents = [one for one in every if one["kind"] == "all-reduce" and one["because"] == "N is contracted"]
    assert [(one["calls"], one["bytes"]) for one in latents] == [(3 * 61, 61 * 1024 * (1536 + 512 + 64) * 2)]
    back = [one for one in every if (one["when"], one["kind"]) == ("backward", "reduce-scatter")]
    assert sorted((one["calls"], one["bytes"]) for one in back) == [(4, 4 * stream // 8), (58, 58 * stream // 8)]
    rank = tfacct.load("deepseek-v3").train(tp=8, sp=True, ctx="1k")
    assert rank.exact and rank.sent_bytes == sum(one["sent_bytes"] for one in every)
    for more in ({"recompute": "attention"}, {"gradient_accumulation": 2}):  # some small models held more
        assert not tfacct.load("deepseek-v3").train(tp=8, sp=True, ctx="1k", **more).exact
    ran = run("comms", "deepseek-v3", "--tp", "8", "--sp", "--tp-plan", "megatron")
    assert ran.code == 2 and "under Megatron's plan, which gathers its latents" in ran.err
