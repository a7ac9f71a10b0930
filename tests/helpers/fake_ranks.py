"""Ranks of a mesh as torch runs them in one process, with collectives that send nothing."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.helpers.lazy import lazy
from tfacct.parallel.mesh import Mesh

reference, transformers = lazy("tfacct.reference.ranks"), lazy("transformers")
Counted = dict[tuple[str, str], Counter[int]]
"""When, kind → how many calls have a result of so many bytes."""
EXPERTS = {
    "mixtral": "num_local_experts",
    "deepseek_v2": "n_routed_experts",
    "deepseek_v3": "n_routed_experts",
    "qwen3_moe": "num_experts",
}
"""Fields with the number of experts."""


def by_call(lines: Iterable[Any]) -> Counted:
    """Collectives call by call."""
    found: Counted = {}
    for one in lines:
        assert one.bytes % one.calls == 0
        found.setdefault((one.when, one.kind), Counter())[one.bytes // one.calls] += one.calls
    return found


def watched(found: Counted, when: str) -> Any:
    """Count the collectives that run inside."""

    def sent(_: str, kind: str, size: int) -> None:
        found.setdefault((when, kind), Counter())[size] += 1

    return reference.watching(reference.KINDS, sent)


def plan_of(model: Any, mesh: Mesh) -> dict[str, Any]:
    """torch's plan for each module, as its tutorials of tensor and sequence parallelism have it."""
    return reference.plan_of(model, sp=mesh.sp, together=mesh.sp or mesh.plan == "megatron")


def random_config(kind: str, rng: random.Random, mesh: Mesh) -> dict[str, Any]:
    """A small config whose axes the mesh divides."""
    kv, group = mesh.tp * rng.choice((1, 2)), rng.choice((1, 2, 3))
    if kind == "gpt2":
        heads = mesh.fsdp * rng.randint(1, 3)  # what is fused there is divided without padding; tables are padded
        width = {"n_head": heads, "n_embd": 2 * heads, "n_layer": rng.randint(1, 3), "n_inner": heads * 6}
        return {
            "model_type": kind,
            **width,
            "vocab_size": mesh.fsdp * rng.randint(5, 20),
            "n_positions": mesh.fsdp * 64,
        }
    return {
        "model_type": kind,
        "hidden_size": kv * group * rng.randint(2, 5),
        "num_attention_heads": kv * group,
        "num_key_value_heads": kv,
        "head_dim": 2 * rng.randint(1, 5),
        "intermediate_size": mesh.tp * rng.randint(3, 15),
        "vocab_size": mesh.tp * rng.randint(5, 20),
        "num_hidden_layers": rng.randint(1, 3),
        "max_position_embeddings": 128,
        "tie_word_embeddings": rng.choice((True, False)),
    }


def random_expert_config(kind: str, rng: random.Random, mesh: Mesh) -> dict[str, Any]:
    """The same with experts, and widths that `tp` does not divide."""
    kv, group, width = mesh.tp * rng.choice((1, 2)), rng.choice((1, 2)), mesh.tp * rng.randint(3, 9)
    odd = rng.randint(1, mesh.tp - 1) if mesh.fsdp == 1 and mesh.tp > 1 else 0  # fsdp does not divide uneven rows again
    width += odd
    if kind.startswith("deepseek"):
        kv, group = kv * mesh.fsdp, 2  # what the class fuses is not padded
        width *= mesh.fsdp
        latent = {"kv_lora_rank": 4 * rng.randint(3, 6), "q_lora_rank": rng.choice((None, 8))}
        heads = {"qk_nope_head_dim": 2 * rng.randint(2, 4), "qk_rope_head_dim": 4, "v_head_dim": rng.randint(3, 7)}
        more = {**latent, **heads, "n_group": 1, "topk_group": 1, "n_shared_experts": rng.randint(1, 2)}
        more |= {"num_key_value_heads": kv * group, "first_k_dense_replace": rng.randint(0, 1), "num_hidden_layers": 3}
    else:
        more = {"num_key_value_heads": kv, "head_dim": 2 * rng.randint(1, 5), "num_hidden_layers": rng.randint(1, 3)}
    return {
        "model_type": kind,
        "hidden_size": kv * group * rng.randint(2, 5),
        "num_attention_heads": kv * group,
        "intermediate_size": mesh.tp * mesh.fsdp * rng.randint(3, 15),
        "vocab_size": mesh.tp * mesh.fsdp * rng.randint(5, 20) + odd,
        "max_position_embeddings": 128,
        "tie_word_embeddings": False,
        **more,
        EXPERTS[kind]: mesh.ep * rng.randint(2, 3),
        "num_experts_per_tok": 2,
        "intermediate_size" if kind == "mixtral" else "moe_intermediate_size": width,
    }


def built(config: dict[str, Any]) -> Any:
    tokens = {"pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0}
    own = transformers.AutoConfig.for_model(**{**config, "use_cache": False, **tokens})
    own._attn_implementation = "sdpa"
    return transformers.AutoModelForCausalLM.from_config(own)
