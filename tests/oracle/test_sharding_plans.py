"""Ranks under the plans of transformers: the axes of `tp`, experts, logits and gradients. Kind: oracle."""

import random

import pytest

import tfacct
from tests.families import TINY
from tests.helpers.fake_ranks import EXPERTS, Counted, built, by_call, plan_of, random_expert_config, watched
from tests.helpers.lazy import lazy
from tests.helpers.rank_configs import LLAMA, verify_shard
from tfacct import families
from tfacct.ledger import paths
from tfacct.ledger.lines import Matmul
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.rules import collectives
from tfacct.parallel.verified import verified

torch, transformers, device_mesh = lazy("torch"), lazy("transformers"), lazy("torch.distributed.device_mesh")
fsdp, parallel = lazy("torch.distributed.fsdp"), lazy("torch.distributed.tensor.parallel")
reference = lazy("tfacct.reference.ranks")

PRESETS = {
    "llama": "llama-3.1-8b", "mistral": "mistral-7b-v0.3", "qwen2": "qwen2-7b", "qwen3": "qwen3-8b",
    "gemma": "gemma-7b", "gemma2": "gemma-2-9b", "starcoder2": "starcoder2-7b", "mixtral": "mixtral-8x7b",
    "qwen2_moe": "qwen1.5-moe-a2.7b", "qwen3_moe": "qwen3-30b-a3b", "deepseek_v2": "deepseek-v2",
    "deepseek_v3": "deepseek-v3",
}  # fmt: skip
THEIRS_WHOLE = {
    "qwen2_moe": {f"layers.*.mlp.shared_expert.{name}" for name in ("gate_proj", "up_proj", "down_proj")},
    "deepseek_v3": {f"layers.*.self_attn.{name}" for name in ("q_b_proj", "kv_b_proj", "o_proj")},
}
"""Modules that are divided here, as Megatron does, and that a plan leaves whole on every rank."""
PARTS = {"mla_kv_a_proj", "moe_tp_experts"}
"""Styles of a module's gradients: what they send is counted below."""


def divided(model: str) -> dict[str, str]:
    """Style of each module of the class, by the axes of its matmuls and of the sums of its weights' gradients."""
    loaded = tfacct.load(model).loaded
    mesh, theirs = Mesh(tp=2), loaded.config.hf_modules
    found: dict[str, str] = {}
    for group in loaded.ledger.groups:
        for line in group.lines:
            if not isinstance(line, Matmul) or line.weight_axes() is None or not paths.repeated(line.path):
                continue
            axis = mesh.sharded_axis(line.einsum.every)
            if axis is None:
                continue
            module, style = theirs[line.path], "colwise" if axis in line.einsum.out else "rowwise"
            if line.expert_axis:  # two products of an expert are one tensor
                module += ".gate_up_proj" if style == "colwise" else ".down_proj"
                style = style.replace("colwise", "packed_colwise")
            assert found.setdefault(module, style) == style
    for one in collectives(loaded.ledger, mesh, Workload(4, 4, 1).axes(), 16, train=True):
        if one.of == "shared weights":
            found[theirs[paths.module_of(one.what)]] = "replicated_with_grad_allreduce"
    return {module.removeprefix("model."): style for module, style in found.items()}


@pytest.mark.parametrize("kind", PRESETS)
def test_axes_shard_what_the_published_plan_shards(kind: str) -> None:
    plan = dict(type(transformers.AutoConfig.for_model(kind)).base_model_tp_plan)
    ours = divided(PRESETS[kind])
    for module in THEIRS_WHOLE.get(kind, ()):
        assert module in ours and module not in plan
        del ours[module]
    # A plan also has rules for modules that this model has not: blocks without experts, queries without a latent.
    idle = {module for module in plan if module not in ours and plan[module] not in PARTS}
    assert idle <= {"layers.*.self_attn.q_proj", *(f"layers.*.mlp.{name}_proj" for name in ("gate", "up", "down"))}
    assert ours == {module: style for module, style in plan.items() if module in ours}


def test_gpt_oss_publishes_a_plan_for_experts_alone() -> None:
    assert transformers.GptOssConfig.base_model_tp_plan is None
    assert "layers.*.mlp.experts" in transformers.GptOssConfig.base_model_ep_plan


RUN = [name for name in families.names() if verified(name, "published_plan") and name != "kimi_k2"]
"""Families whose classes send under their own plans what is counted: deepseek_v3, whose class is kimi_k2's too, with
attention of V2's plan. glm4_moe's sums no gradients of the norms of queries and keys, of which each rank has those of
its own heads."""


@pytest.mark.parametrize(
    "kind", ["cohere", "mimo_v2_flash", *(pytest.param(kind, marks=pytest.mark.slow) for kind in RUN)]
)
def test_a_class_sends_what_is_counted(kind: str) -> None:
    clip = {"clip_qkv": None} if kind == "olmoe" else {}  # it bounds in place what torch gathered, and torch refuses
    verify_shard(tfacct.load({**TINY[kind], **clip}), {"tp": 2}, ctx=8, batch=2, dtype="bf16", plan="transformers")


MESHES: dict[str, dict[str, int]] = {
    "tp": {"tp": 2},
    "tp-4": {"tp": 4},
    "ep": {"tp": 2, "ep": 2},
    "ep-own": {"fsdp": 2, "ep": 2},
    "ep-all": {"tp": 2, "fsdp": 2, "ep": 4},
}
CASES = [("mixtral", "ep", 0), ("deepseek_v2", "tp", 0), ("qwen3_moe", "ep", 0), ("qwen3_moe", "ep-own", 0)]
FURTHER = [
    pytest.param(kind, mesh, seed, marks=pytest.mark.slow) for kind in EXPERTS for mesh in MESHES for seed in range(4)
]


@pytest.mark.parametrize(("kind", "mesh", "seed"), CASES + FURTHER)
def test_experts_send_what_transformers_does(kind: str, mesh: str, seed: int) -> None:
    rng, axes = random.Random(f"{kind} {mesh} {seed}"), MESHES[mesh]
    config = random_expert_config(kind, rng, Mesh(**axes))
    tokens = config[EXPERTS[kind]] * axes.get("tp", 1) * rng.randint(1, 2)
    verify_shard(tfacct.load(config), axes, ctx=tokens, batch=2, dtype="bf16" if seed == 3 else "fp32")


AT = Workload(5, 5, 2).axes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_divided_loss_is_torchs(dtype: str) -> None:
    model, found = built(LLAMA).to(getattr(torch, dtype)), Counted()
    with reference.fake_ranks(2):
        parallel.parallelize_module(model, device_mesh.init_device_mesh("cpu", (2,)), plan_of(model, Mesh(tp=2)))
        ids = torch.zeros(2, 5, dtype=torch.long)
        logits = model(input_ids=ids, position_ids=torch.arange(5)[None]).logits.float()
        with parallel.loss_parallel():
            with watched(found, "forward"):
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
            with watched(found, "backward"):
                loss.backward()
    loaded, bits = tfacct.load(LLAMA).loaded, 32 if dtype == "float32" else 16
    lines = collectives(loaded.ledger, Mesh(tp=2), AT, bits, train=True, after="loss")
    own = [one for one in lines if one.of == "logits"]
    assert [one.what for one in own] == ["loss.max", "loss.sum", "loss.target"]
    # 2 sequences of 5 tokens, in fp32 for any dtype of the residual stream.
    assert found["forward", "all-reduce"] == {one.bytes: len(own) for one in own} == {2 * 5 * 4: 3}
    assert ("backward", "all-gather") not in found


def test_gradients_are_summed_in_another_dtype() -> None:
    model, found = built(LLAMA), Counted()
    with reference.fake_ranks(2):
        both = device_mesh.init_device_mesh("cpu", (2,))
        policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in (*model.model.layers, model):
            fsdp.fully_shard(block, mesh=both, mp_policy=policy)
        ids = torch.zeros(2, 5, dtype=torch.long)
        with watched(found, "forward"):
            logits = model(input_ids=ids).logits
        with watched(found, "backward"):
            logits.sum().backward()
    narrow, wide = (
        by_call(collectives(tfacct.load(LLAMA).loaded.ledger, Mesh(fsdp=2), AT, 16, train=True, reduced=bits))
        for bits in (16, 32)
    )
    assert wide == found != narrow
