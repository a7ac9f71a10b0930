"""Collectives and shards of a rank as torch runs the class under a plan, in a process group that sends nothing. Kind:
oracle.
"""

import random
from typing import Any

import pytest

import tfacct
from tests.families import TINY
from tests.helpers.fake_ranks import accounted, built, random_config, witnessed
from tests.helpers.rank_configs import LLAMA
from tfacct.parallel.mesh import Mesh


def agrees(model: tfacct.Model, mesh: dict[str, Any], *, ctx: int, batch: int = 1, plan: str | None = None) -> None:
    found = model.verify(shard=True, ctx=ctx, batch=batch, **mesh)
    assert found.agrees and found.rank_params == found.measured_rank_params
    assert plan in (None, found.plan)
    assert [one["check"] for one in found.cross_checks] == [
        "parameters of rank 0",
        "calls of collectives",
        "bytes of their results",
    ]
    assert found.cross_checks[1]["measured"] > 0 and all(line["equal"] for line in found.lines)


EVEN = {"vocab_size": 164, "intermediate_size": 72, "moe_intermediate_size": 38}
SMALL: dict[str, Any] = {"even llama": LLAMA, "even afmoe": {**TINY["afmoe"], **EVEN}}
SMALL |= {name: TINY[name] for name in ("llama", "mixtral", "cohere")}


@pytest.mark.parametrize(
    ("name", "mesh", "plan"),
    [
        ("even llama", {"tp": 2, "fsdp": 2}, "torch"),
        ("even llama", {"tp": 2, "sp": True}, "torch"),
        ("even llama", {"tp": 2, "tp_plan": "megatron"}, "torch"),
        ("llama", {"tp": 2}, "transformers"),  # of uneven widths
        ("mixtral", {"tp": 2}, "transformers"),
        ("mixtral-8x7b", {"tp": 2, "ep": 2}, "transformers"),
        ("mixtral-8x7b", {"tp": 2, "fsdp": 2, "ep": 4}, "transformers"),
        ("mixtral-8x7b", {"fsdp": 2, "ep": 2}, "torch"),  # each has a batch, and whole experts
        ("mixtral-8x7b", {"tp": 2, "sp": True, "fsdp": 4, "ep": 4}, "torch"),  # two ranks have each expert
        ("qwen1.5-moe-a2.7b", {"tp": 2, "sp": True}, "torch"),  # with a gated network beside them
        ("olmoe-1b-7b", {"tp": 2, "sp": True}, "torch"),  # and heads that are gathered for a norm
        ("olmoe-1b-7b", {"tp": 2, "fsdp": 2, "ep": 4}, "transformers"),
        ("minimax-m2", {"tp": 2, "ep": 2}, "transformers"),
        ("youtu-llm-2b", {"tp": 4, "fsdp": 2, "sp": True}, "torch"),  # latents, by torchtitan's plan
        ("cohere", {"tp": 2}, "transformers"),
        ("gpt2", {"fsdp": 2}, "torch"),
        ("even llama", {"fsdp": 2, "dp": 2}, "torch"),  # HSDP
        ("even llama", {"tp": 2, "fsdp": 2, "dp": 2}, "torch"),
        ("even llama", {"cp": 2, "fsdp": 2}, "torch"),
        ("even llama", {"cp": 2, "tp": 2}, "torch"),
        ("qwen3-0.6b", {"cp": 4}, "torch"),  # heads of a width of their own
        ("falcon-7b", {"cp": 4}, "torch"),  # one head of keys, under a name of its own
        ("even afmoe", {"fsdp": 2}, "torch"),  # what corrects the choice of experts has no gradient
        ("olmo-2-1b", {"fsdp": 7}, "torch"),
    ],
)
def test_every_check_agrees(name: str, mesh: dict[str, Any], plan: str) -> None:
    agrees(tfacct.load(SMALL.get(name, name)), mesh, ctx=16, plan=plan)


MESHES: dict[str, dict[str, Any]] = {
    "tp": {"tp": 2},
    "megatron": {"tp": 4, "tp_plan": "megatron"},
    "sp": {"tp": 2, "sp": True},
    "fsdp": {"fsdp": 3},
    "fsdp-tp": {"tp": 2, "fsdp": 2},
    "fsdp-sp": {"tp": 2, "sp": True, "fsdp": 3},
}


DENSE = ("llama", "mistral", "qwen2", "qwen3", "starcoder2", "gemma", "gemma2", "gemma3_text", "olmo2", "olmo3")
DRAWS = [("olmo2", "tp", 0), ("llama", "megatron", 0), ("starcoder2", "sp", 0), ("qwen3", "fsdp-sp", 0)]
DRAWS += [("gpt2", "fsdp", 0)]
FURTHER = [
    pytest.param(kind, mesh, seed, marks=pytest.mark.slow)
    for kind in DENSE
    for mesh in MESHES
    if not (kind.startswith("gemma") and "sp" in mesh)  # refused: the class scales its rows inside the module
    for seed in range(1, 5)
]


@pytest.mark.parametrize(("kind", "mesh", "seed"), DRAWS + FURTHER)
def test_every_collective_of_a_random_config_is_torchs(kind: str, mesh: str, seed: int) -> None:
    """A small config whose axes the mesh divides, and a step."""
    rng, ranks = random.Random(f"{kind} {mesh} {seed}"), MESHES[mesh]
    tp, fsdp = ranks.get("tp", 1), ranks.get("fsdp", 1)
    config = random_config(kind, rng, Mesh(tp=tp, fsdp=fsdp))
    agrees(tfacct.load(config), ranks, ctx=tp * rng.randint(1, 4), batch=rng.randint(1, 3))


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable`")
@pytest.mark.parametrize(
    ("kind", "mesh"),
    [("llama", Mesh(tp=2)), ("llama", Mesh(tp=2, sp=True, fsdp=3)), ("gemma2", Mesh(tp=2))],
    ids=["tp", "fsdp-sp", "gemma2"],
)
def test_every_collective_of_a_step_with_recomputed_layers_is_torchs(kind: str, mesh: Mesh) -> None:
    """The last sum of a pre-norm layer does not run again, that of gemma2, which a norm reads, does."""
    config = random_config(kind, random.Random(kind), mesh)
    model = built(config).train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    sent = accounted(config, mesh, 3, mesh.tp * 2, train=True, recomputed="layers")
    assert sent == witnessed(model, mesh, 3, mesh.tp * 2), config


EXPERTS = ("qwen3-30b-a3b", "qwen1.5-moe-a2.7b", "glm-4.5-air", "dots.llm1", "minimax-m2")
LATENTS = ("deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "kimi-k2", "glm-4.7-flash")


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"tp": 2}, {"tp": 4, "fsdp": 2}, {"tp": 2, "ep": 2}, {"tp": 2, "fsdp": 2, "ep": 4}])
@pytest.mark.parametrize("name", EXPERTS + LATENTS)
def test_experts_and_latents_beside_sharded_tokens_send_what_is_counted(name: str, mesh: dict[str, int]) -> None:
    if name not in LATENTS or mesh != {"tp": 4, "fsdp": 2}:
        agrees(tfacct.load(name), {"sp": True, **mesh}, ctx=64, batch=2)
