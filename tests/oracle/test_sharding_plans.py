"""Axes that `tp` shards, module by module, compared with the plans in transformers' configs. Kind: oracle."""

import pytest

import tfacct
from tests.families import TINY
from tests.helpers.fake_expert_ranks import accounted, witnessed
from tests.helpers.lazy import lazy
from tfacct import families
from tfacct.ledger import paths
from tfacct.ledger.lines import Matmul
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.rules import collectives
from tfacct.parallel.shard_shapes import stored_elements
from tfacct.parallel.support import unsupported_part
from tfacct.parallel.verified import verified

torch, transformers = lazy("torch"), lazy("transformers")

PRESETS = {
    "llama": "llama-3.1-8b",
    "mistral": "mistral-7b-v0.3",
    "qwen2": "qwen2-7b",
    "qwen3": "qwen3-8b",
    "gemma": "gemma-7b",
    "gemma2": "gemma-2-9b",
    "starcoder2": "starcoder2-7b",
    "mixtral": "mixtral-8x7b",
    "qwen2_moe": "qwen1.5-moe-a2.7b",
    "qwen3_moe": "qwen3-30b-a3b",
    "deepseek_v2": "deepseek-v2",
    "deepseek_v3": "deepseek-v3",
}
THEIRS_WHOLE = {
    "qwen2_moe": {f"layers.*.mlp.shared_expert.{name}" for name in ("gate_proj", "up_proj", "down_proj")},
    "deepseek_v3": {f"layers.*.self_attn.{name}" for name in ("q_b_proj", "kv_b_proj", "o_proj")},
}
"""Modules that are divided here, as Megatron does, and that a plan leaves whole on every rank."""
PARTS = {"mla_kv_a_proj", "moe_tp_experts"}
"""Styles of what a module does with its gradients: `tests/oracle/test_expert_parallel.py` counts what they send."""


def divided(model: str) -> dict[str, str]:
    """Style of each module of the class, from the letters of its products and of what its weights' gradients sum."""
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
def test_letters_divide_what_the_published_plan_does(kind: str) -> None:
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
    assert (
        transformers.GptOssConfig.base_model_tp_plan is None
        and "layers.*.mlp.experts" in transformers.GptOssConfig.base_model_ep_plan
    )


RUN = [name for name in families.names() if verified(name, "published_plan") and name != "kimi_k2"]
"""Families whose classes send under their own plans what is counted: deepseek_v3, whose class is kimi_k2's too, with
attention of V2's plan. glm4_moe's sums no gradients of the norms of queries and keys, of which each rank has those of
its own heads."""


def as_planned(kind: str) -> None:
    config = {**TINY[kind], "tie_word_embeddings": False}  # plans take a head and its table apart
    config |= (
        {"clip_qkv": None} if kind == "olmoe" else {}
    )  # which bounds in place what torch gathered, and torch refuses
    own = transformers.AutoConfig.for_model(**config)
    own.use_cache, own._attn_implementation = False, "eager"
    model = transformers.AutoModelForCausalLM.from_config(own).to(torch.bfloat16)
    mesh = Mesh(tp=2)
    assert unsupported_part(tfacct.load(config).loaded.architecture) is None
    seen, local = witnessed(model, mesh, 2, 8, train=True)
    assert accounted(config, mesh, 2, 8, train=True, bits=16) == seen
    assert stored_elements(tfacct.load(config).loaded.ledger, mesh) == local


@pytest.mark.parametrize("kind", ["cohere", "mimo_v2_flash"])
def test_a_class_sends_what_is_counted(kind: str) -> None:
    as_planned(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUN)
def test_every_class_sends_what_is_counted(kind: str) -> None:
    as_planned(kind)
