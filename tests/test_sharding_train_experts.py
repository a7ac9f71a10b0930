"""Experts whose widths ranks divide in a training step: against transformers' own division of them, and torch's plans
for the rest."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

import tfacct
from tests.test_sharding import KINDS, fake_ranks, plan_of, random_config
from tests.test_sharding_lora import local, witnessed
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.ledger.workload import Workload
from tfacct.reports import mesh as meshes
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe

SIZES = {
    "mixtral": ("num_local_experts", "num_experts_per_tok", "intermediate_size"),
    "qwen3_moe": ("num_experts", "num_experts_per_tok", "moe_intermediate_size"),
    "qwen2_moe": ("num_experts", "num_experts_per_tok", "moe_intermediate_size"),
}


def drawn(kind: str, seed: int) -> tuple[dict[str, Any], Recipe, Workload]:
    """Widths are multiples of 8 on each rank: torch's grouped products ask for that."""
    mesh, rng = Mesh(tp=(2, 4)[seed % 2]), random.Random(f"experts {kind} {seed}")
    config = {**random_config(kind, rng, mesh), "max_position_embeddings": 512, "tie_word_embeddings": False}
    config["hidden_size"] = 8 * config["num_attention_heads"] * rng.randint(1, 2)
    config["head_dim"] = 8 * rng.randint(1, 3)
    if kind == "qwen2_moe":
        del config["head_dim"]
        config["shared_expert_intermediate_size"] = mesh.tp * 8 * rng.choice((1, 4, 20))
    config["vocab_size"] = mesh.tp * rng.choice((8, 50, 500, 2000))
    sizes = rng.choice((4, 8)), 2, mesh.tp * 8 * rng.choice((1, 4, 20))
    config |= dict(zip(SIZES[kind], sizes, strict=True))
    tokens = mesh.tp * rng.choice((4, 8, 40, 96))
    recipe = Recipe(optimizer="none", mesh=mesh, recompute="full" if seed % 3 == 2 else "none")
    return config, recipe, Workload(tokens, tokens, rng.randint(1, 3))


def divided(config: dict[str, Any], recipe: Recipe, published: str = ".experts") -> Any:
    """The class, of which modules with these words in their names are divided by transformers' own plan, the rest by
    torch's."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module
    from transformers.distributed import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    from tfacct.meta.model import build_model

    mesh = recipe.mesh
    assert mesh is not None
    model = build_model(tfacct.load(config).loaded.of_class, "sdpa", "bf16")
    ranks = init_device_mesh("cpu", (mesh.tp,), mesh_dim_names=("tp",))
    theirs, *_ = model._resolve_parallel_plans(DistributedConfig(tp_size=mesh.tp))
    own = {name: how for name, how in plan_of(model, mesh).items() if published not in name}
    parallelize_module(model, ranks, own)
    apply_tensor_parallelism(model, ranks, {name: how for name, how in theirs.items() if published in name})
    if recipe.recompute == "full":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def compared(kind: str, seed: int) -> None:
    config, recipe, work = drawn(kind, seed)
    one = trained(tfacct.load(config).loaded, work, recipe)
    assert recipe.mesh is not None
    with fake_ranks(recipe.mesh.tp), patch("tests.test_sharding_lora.watched", sums):
        model = divided(config, recipe)
        kept, most, sent = witnessed(model, int(work.batch), int(work.tokens))
        stored = sum(2 * local(weight).numel() for weight in model.parameters())
    assert one.step.parameters == stored
    assert one.step.kept() == kept, (config, recipe)
    assert max(int(each.total) for each in one.instants if each.name != "optimizer step") == most, (config, recipe)
    if recipe.recompute == "none":  # what blocks send when they run again is not counted
        found: dict[Any, Counter[int]] = {}
        for each in meshes.calls(one.subject, recipe.mesh, one.work.axes(), 16, train=True):
            if each.of == "shared weights":
                continue  # torch leaves these sums open until an optimizer asks
            found.setdefault((each.over, each.when, each.kind), Counter())[each.bytes // each.calls] += each.calls
        assert found == {key: +sizes for key, sizes in sent.items() if +sizes}, (config, recipe)


def sums(found: dict[Any, Counter[int]], when: str) -> Any:
    """Counts collectives: torch's, which are functions, and transformers', which write into what they are given."""
    from tests.collectives import watching

    def sent(_: str, kind: str, size: int) -> None:
        found.setdefault(("tp", when, kind), Counter())[size] += 1

    return watching({**KINDS, "allreduce_": "all-reduce"}, sent)


@pytest.mark.parametrize(("kind", "seed"), [("mixtral", 0), ("mixtral", 2), ("qwen3_moe", 1), ("qwen2_moe", 3)])
def test_experts_of_a_rank_are_transformers_own(kind: str, seed: int) -> None:
    compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_experts_of_random_ranks_are_transformers_own(kind: str) -> None:
    for seed in range(4, 20):
        compared(kind, seed)


def test_mixtral_by_hand() -> None:
    rank = tfacct.load("mixtral-8x7b").train(ctx="2k", tp=8)
    # 32 blocks: attention's q and o, k and v, three products of 8 experts, of which a rank has an eighth; a router and
    # two norms whole. The table, the head, a norm.
    block = 2 * 4096 * (4096 + 1024) // 8 + 3 * 8 * 4096 * 14336 // 8 + 8 * 4096 + 2 * 4096
    assert rank.weights_bytes == 2 * (32 * block + 2 * 32000 * 4096 // 8 + 4096)
    assert rank.exact and rank.sent_bytes == tfacct.load("mixtral-8x7b").comms(tp=8, train=True, ctx="2k").sent_bytes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("glm-4.5-air --tp 2 --sp --ep 2", "divides are not counted beside --sp and a shared network"),
        (
            "gpt-oss-20b --tp 2 --attention sdpa",
            "the step of one device alone is counted, with --attention eager",
        ),
        ("deepseek-v3 --cp 2", "is sent by choice hint: --fsdp divides weights and leaves sequences whole"),
    ],
)
def test_what_is_not_counted_is_refused_by_name(run: Any, arguments: str, said: str) -> None:
    ran = run("train", *arguments.split())
    assert ran.code == 2 and said in " ".join(ran.err.split()), ran.err
