"""Collectives and shards of a rank as torch runs the class under a plan, in a process group that sends nothing. Kind:
oracle.
"""

import random
from typing import Any

import pytest

import tfacct
from tests.families import TINY
from tests.families import random_config as config_of_seed
from tests.helpers.fake_ranks import (
    EXPERTS,
    Counted,
    built,
    by_call,
    plan_of,
    random_config,
    random_expert_config,
    watched,
)
from tests.helpers.lazy import lazy
from tests.helpers.rank_configs import LLAMA, verify_shard
from tests.helpers.torch_ranks import MATMULS, add_peft, divide_peft
from tfacct.architecture.axis_names import MARKS
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh, tp_axis
from tfacct.parallel.rules import collectives
from tfacct.parallel.shard_shapes import fsdp_units
from tfacct.training import layouts
from tfacct.training.recipe import FP32, Recipe

cuda, lora, torch = lazy("tfacct.meta.cuda"), lazy("tfacct.meta.lora"), lazy("torch")
meta_model, device_mesh = lazy("tfacct.meta.model"), lazy("torch.distributed.device_mesh")
parallel, reference = lazy("torch.distributed.tensor.parallel"), lazy("tfacct.reference.ranks")

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
        ("qwen1.5-moe-a2.7b", {"tp": 2, "sp": True}, "torch"),  # with a gated shared expert
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
    verify_shard(tfacct.load(SMALL.get(name, name)), mesh, ctx=16, plan=plan)


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
    verify_shard(tfacct.load(config), ranks, ctx=tp * rng.randint(1, 4), batch=rng.randint(1, 3))


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable`")
@pytest.mark.parametrize(
    ("kind", "mesh"),
    [
        ("llama", {"tp": 2}),
        ("llama", {"tp": 2, "sp": True, "fsdp": 3}),
        ("gemma2", {"tp": 2}),
        ("mixtral", {"tp": 2}),
        ("deepseek_v2", {"tp": 2}),
        ("deepseek_v2", {"tp": 2, "fsdp": 2, "ep": 4}),
    ],
)
def test_every_collective_of_a_step_with_recomputed_layers_is_torchs(
    monkeypatch: pytest.MonkeyPatch, kind: str, mesh: dict[str, Any]
) -> None:
    """The last sum of a pre-norm layer, or of its experts, does not run again; that of gemma2, which a norm reads, and
    that of experts before a shared expert do."""
    shard = reference._shard

    def shard_and_recompute(model: Any, *how: Any) -> None:
        model.train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        shard(model, *how)

    def recomputed(*args: Any, **how: Any) -> Any:
        lines = collectives(*args, **how, recomputed="layers")
        return [one._replace(when="backward") if one.when == "recompute" else one for one in lines]

    monkeypatch.setattr(reference, "_shard", shard_and_recompute)
    monkeypatch.setattr("tfacct.verify.ranks.collectives", recomputed)
    draw = random_expert_config if kind in EXPERTS else random_config
    config = draw(kind, random.Random(kind), Mesh(**mesh))
    verify_shard(tfacct.load(config), mesh, ctx=mesh["tp"] * config.get(EXPERTS.get(kind, ""), 2), batch=3)


ROUTED = ("qwen3-30b-a3b", "qwen1.5-moe-a2.7b", "glm-4.5-air", "dots.llm1", "minimax-m2")
LATENTS = ("deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "kimi-k2", "glm-4.7-flash")


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"tp": 2}, {"tp": 4, "fsdp": 2}, {"tp": 2, "ep": 2}, {"tp": 2, "fsdp": 2, "ep": 4}])
@pytest.mark.parametrize("name", ROUTED + LATENTS)
def test_experts_and_latents_with_sharded_tokens_send_what_is_counted(name: str, mesh: dict[str, int]) -> None:
    if name not in LATENTS or mesh != {"tp": 4, "fsdp": 2}:
        verify_shard(tfacct.load(name), {"sp": True, **mesh}, ctx=64, batch=2)


ENCODERS = (
    *("bert", "camembert", "distilbert", "electra", "eurobert", "gte", "mpnet", "nomic_bert", "roberta"),
    "xlm-roberta",
)
PAIRS = ("bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "umt5")
ALIKE = (
    *("blenderbot", "blenderbot-small", "data2vec-text", "ernie", "jina_embeddings_v3", "megatron-bert", "mvp"),
    *("plbart", "rembert", "roberta-prelayernorm", "whisper", "xlm-roberta-xl"),
)
"""Families of which one small config is asked."""
WIDTHS = ("hidden_size", "dim", "d_model")
OWN_WIDTH = ("mt5", "t5", "umt5")
"""Families whose heads have a width of their own."""
NETWORKS = ("intermediate_size", "d_ff", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim", "vocab_size")
ENCODER_MESHES: dict[str, dict[str, int]] = {"tp": {"tp": 2}, "fsdp": {"fsdp": 3}, "both": {"tp": 2, "fsdp": 3}}


def divisible(kind: str, config: dict[str, Any], tp: int) -> dict[str, Any]:
    """The same with as many heads, and widths, as ranks divide."""
    found = dict(config)
    for name, value in config.items():
        if "heads" in name or (name in WIDTHS and kind not in OWN_WIDTH):
            found[name] = value * tp
        elif name in (*NETWORKS, "decoder_vocab_size") and value:
            found[name] = -(-value // tp) * tp
    return found


QUICK = [("bert", "both", 0), ("roberta", "tp", 0), ("t5", "both", 0), ("marian", "fsdp", 0), ("bart", "tp", 0)]
FURTHER_ENCODERS = [
    (kind, mesh, seed) for kind in ENCODERS + PAIRS for mesh in ENCODER_MESHES for seed in range(10, 16)
]
FURTHER_ENCODERS += [(kind, mesh, 0) for kind in ALIKE for mesh in ENCODER_MESHES]


@pytest.mark.parametrize(
    ("kind", "mesh", "seed"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in FURTHER_ENCODERS)]
)
def test_every_collective_of_a_step_is_torchs(kind: str, mesh: str, seed: int) -> None:
    """With the small config of a kind, or a random one from a seed: sines without gradients (marian), relative position
    biases of the first layers (t5), heads with a bias."""
    config = config_of_seed(kind, seed) if seed else TINY[kind]
    source = {"source": config.get("max_source_positions", 11)} if "decoder_layers" in config else {}
    model = tfacct.load(divisible(kind, config, ENCODER_MESHES[mesh].get("tp", 1)))
    verify_shard(model, ENCODER_MESHES[mesh], ctx=7, batch=2, all_layers=True, **source)


def test_axes_of_one_side_are_sharded_too() -> None:
    """An encoder with other sizes than the decoder has its own axes: `Nenc`, `Fenc`."""
    assert {mark for mark in MARKS.values() if tp_axis(f"N{mark}") != "N" or tp_axis(f"Fe{mark}") != "Fe"} == set()
    assert not any(map(tp_axis, ("Vs", "Kc", "Fm", "Kf")))
    sizes = {"encoder_ffn_dim": 64, "decoder_ffn_dim": 96, "encoder_attention_heads": 8, "decoder_attention_heads": 4}
    model = tfacct.load("bart-base", d_model=64, **sizes)
    whole, rank = model.params(), {line["path"]: line["rank_params"] for line in model.params(tp=4).lines}
    for line in whole.lines:
        divided = line["path"].endswith(("_proj.weight", "up_proj.bias"))
        assert rank[line["path"]] == line["params"] // (4 if divided else 1) or not divided
    bart = tfacct.load("bart-base", d_model=64, **{**sizes, "encoder_attention_heads": 16})
    with pytest.raises(tfacct.TfacctError, match=r"tp=16 does not divide the query heads \(4\)") as caught:
        bart.params(tp=16)
    assert caught.value.hint == "supported sizes: 1, 2, 4"


def test_relative_position_biases_are_in_the_first_layers() -> None:
    units = [*fsdp_units(tfacct.load("t5-base").loaded.ledger, Mesh(fsdp=2))]
    times = [("encoder.blocks.*", 1), ("encoder.blocks.*", 11), ("blocks.*", 1), ("blocks.*", 11), ("", 1)]
    assert [(unit.what, unit.times) for unit in units] == times
    sizes = [sum(one.elements for one in unit.shards) for unit in units]
    assert sizes[0] - sizes[1] == sizes[2] - sizes[3] == 32 // 2 * 12


def counted(model: Any, recipe: Recipe, batch: int, tokens: int) -> Counted:
    return by_call(layouts.collectives(model, Workload(tokens, tokens, batch), recipe))


def rank_of(recipe: Recipe) -> int:
    return int((recipe.lora or "").partition(":")[0])


def drawn(mesh: Mesh, seed: int) -> tuple[dict[str, Any], Recipe]:
    """A config, and a recipe with adapters on some of its matmuls."""
    rng = random.Random(f"lora {mesh} {seed}")
    config = {**random_config(("llama", "qwen3")[seed % 2], rng, mesh), "head_dim": 8, "tie_word_embeddings": False}
    config["vocab_size"] = mesh.tp * (2 * config["hidden_size"] + rng.choice((1, 50, 300)))
    lora = f"{rng.choice((1, 4, 5))}:{','.join(MATMULS)}"
    return config, Recipe(optimizer="none", mesh=mesh, lora=lora, adapter_dtype=rng.choice(("fp32", "bf16"))).checked()


@pytest.mark.parametrize("seed", [0, 1])
def test_adapters_of_tp_ranks_send_the_bytes_of_peft(seed: int) -> None:
    mesh = Mesh(tp=2)
    config, recipe = drawn(mesh, seed)
    sent: Counted = {}
    with reference.fake_ranks(2), cuda.cuda_kernels(), parallel.loss_parallel():
        model = meta_model.build_model(tfacct.load(config).loaded.of_class, "sdpa", "bf16")
        both = device_mesh.init_device_mesh("cpu", (2,))
        parallel.parallelize_module(model, both, plan_of(model, mesh))
        lora.add_adapters(model, rank_of(recipe), list(MATMULS), fp32=recipe.adapter_dtype == FP32)
        divide_peft(model, both)
        ids = torch.zeros(2, 16, dtype=torch.long, device="meta")
        with watched(sent, "forward"):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        with watched(sent, "backward"):
            loss.backward()
    sent["forward", "all-reduce"].subtract({4 * 2 * 16: 3})  # of each token's loss
    theirs = {key: +sizes for key, sizes in sent.items() if +sizes}
    assert counted(tfacct.load(config).loaded, recipe, 2, 16) == theirs, (config, recipe)


@pytest.mark.parametrize("seed", [0, 1])
def test_adapters_of_fsdp_ranks_send_the_bytes_of_peft(seed: int) -> None:
    mesh = Mesh(fsdp=(2, 3)[seed])
    config, recipe = drawn(mesh, seed)
    model, sent = built(config).bfloat16(), Counted()
    add_peft(model, rank_of(recipe), fp32=recipe.adapter_dtype == FP32)
    with reference.fake_ranks(mesh.fsdp):
        reference._shard(model, 1, mesh.fsdp, 1, 1, (False, False, False, False))
        ids = torch.zeros(2, 8, dtype=torch.long)
        with watched(sent, "forward"):
            logits = model(input_ids=ids, position_ids=torch.arange(8)[None]).logits
        with watched(sent, "backward"):
            logits.sum().backward()
    assert counted(tfacct.load(config).loaded, recipe, 2, 8) == sent, (config, recipe)
