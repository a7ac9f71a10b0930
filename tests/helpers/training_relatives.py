"""Random small models of further families whose training step is measured, of Llama's sizes and their own."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tests.helpers.training_encoders import ENCODERS

Pick: TypeAlias = Callable[[list[Any]], Any]
Config: TypeAlias = dict[str, Any]

TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DROPS = [0.0, 0.0, 0.1]


def grouped(pick: Pick, config: Config, *, own_head: bool = True) -> Config:
    """Llama's sizes; `own_head`: heads need not divide the hidden size."""
    named = "num_hidden_layers num_attention_heads num_key_value_heads max_position_embeddings intermediate_size"
    taken = {name: config[name] for name in named.split()}
    if own_head:
        return {**taken, "hidden_size": config["hidden_size"], "head_dim": config["head_dim"], **TOKENS}
    return {**taken, "hidden_size": config["num_attention_heads"] * config["head_dim"], **TOKENS}


def routed(pick: Pick, config: Config, *, own_head: bool = True) -> Config:
    """Sizes of experts: grouped products take rows of 16 bytes."""
    taken = grouped(pick, config, own_head=own_head)
    width = config["num_attention_heads"] * 8
    hidden = pick([24, 40, 64, 120]) if own_head else width * pick([1, 2, 3])
    return {**taken, "hidden_size": hidden, "num_experts_per_tok": pick([1, 2])}


def layers(pick: Pick, config: Config) -> Config:
    """A kind for each layer, or the class's own."""
    count = config["num_hidden_layers"]
    kinds = [pick(["full_attention", "sliding_attention"]) for _ in range(count - 1)]
    kinds.insert(pick([0, count - 1]), "sliding_attention")  # at least one block has the window
    return {"sliding_window": pick([2, 8, 17, 40]), "layer_types": pick([None, kinds])}


def smollm3(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        "no_rope_layer_interval": pick([2, 3, 4]),
        "attention_bias": pick([True, False]),
        "mlp_bias": pick([True, False]),
        "use_sliding_window": pick([False, False, True]),
        "sliding_window": pick([8, 40]),
        "attention_dropout": pick(DROPS),
    }


def granite(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        "attention_bias": pick([True, False]),
        "mlp_bias": pick([True, False]),
        "embedding_multiplier": pick([1.0, 12.0]),
        "logits_scaling": pick([1.0, 8.0]),
        "residual_multiplier": pick([1.0, 0.22]),
        "attention_dropout": pick(DROPS),
    }


def ministral3(pick: Pick, config: Config) -> Config:
    return {**grouped(pick, config), "sliding_window": pick([None, None, 2, 8, 40]), "attention_dropout": pick(DROPS)}


def olmo3(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config, own_head=False),
        **layers(pick, config),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def olmo(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        "attention_bias": pick([True, False]),
        "clip_qkv": pick([None, None, 8.0]),
        "attention_dropout": pick(DROPS),
    }


def olmoe(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config, own_head=False),
        "intermediate_size": pick([16, 72, 200]),
        "num_experts": pick([3, 5]),
        "norm_topk_prob": pick([True, False]),
        "clip_qkv": pick([None, None, 8.0]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def cohere(pick: Pick, config: Config) -> Config:
    return {**grouped(pick, config), "attention_bias": pick([True, False]), "attention_dropout": pick(DROPS)}


def cohere2(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config, own_head=False),
        **layers(pick, config),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def seed_oss(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        "attention_bias": pick([True, False]),
        "attention_out_bias": pick([True, False]),
        "mlp_bias": pick([True, False]),
        "residual_dropout": pick(DROPS),
        "attention_dropout": pick(DROPS),
    }


def stablelm(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config, own_head=False),
        "partial_rotary_factor": pick([0.25, 0.5, 1.0]),
        "use_qkv_bias": pick([True, False]),
        "use_parallel_residual": pick([False, False, True]),
        "hidden_dropout": pick(DROPS),
        "attention_dropout": pick(DROPS),
    }


def starcoder2(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        "use_bias": pick([True, False]),
        "sliding_window": pick([None, 2, 8, 17, 40]),
        "hidden_act": pick(["gelu_pytorch_tanh", "gelu"]),
        "residual_dropout": pick(DROPS),
        "embedding_dropout": pick(DROPS),
        "attention_dropout": pick(DROPS),
    }


def glm(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        "partial_rotary_factor": pick([0.5, 1.0]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


glm4 = glm


def helium(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config, own_head=False),
        "head_dim": config["head_dim"],
        "attention_bias": pick([True, False]),
        "mlp_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def cwm(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        **layers(pick, config),
        "mlp_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def hyperclovax(pick: Pick, config: Config) -> Config:
    return {**granite(pick, config), "use_post_norm": pick([True, False])}


def nemotron(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        "partial_rotary_factor": pick([0.5, 1.0]),
        "attention_bias": pick([True, False]),
        "mlp_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def ernie4_5(pick: Pick, config: Config) -> Config:
    return {**grouped(pick, config), "use_bias": pick([True, False])}


def exaone4(pick: Pick, config: Config) -> Config:
    return {**grouped(pick, config), **layers(pick, config), "attention_dropout": pick(DROPS)}


def phimoe(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config, own_head=False),
        "num_experts_per_tok": 2,
        "intermediate_size": pick([16, 72, 200]),
        "num_local_experts": pick([3, 5]),
        "attention_bias": pick([True, False]),
        "lm_head_bias": pick([True, False]),
        "sliding_window": pick([None, 2, 8, 40]),
        "attention_dropout": pick(DROPS),
    }


def glm4_moe(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config),
        "partial_rotary_factor": pick([0.5, 1.0]),
        "attention_bias": pick([True, False]),
        "use_qk_norm": pick([True, False]),
        "moe_intermediate_size": pick([16, 72, 200]),
        "n_routed_experts": pick([4, 6]),
        "n_shared_experts": pick([1, 2]),
        "first_k_dense_replace": pick([0, 1, 2]),
        "norm_topk_prob": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def latent(pick: Pick, config: Config) -> Config:
    named = "num_hidden_layers num_attention_heads max_position_embeddings intermediate_size"
    return {
        **{name: config[name] for name in named.split()},
        **TOKENS,
        "num_key_value_heads": config["num_attention_heads"],
        "hidden_size": pick([24, 40, 64, 120]),
        "q_lora_rank": pick([None, 12, 30]),
        "kv_lora_rank": pick([10, 24, 70]),
        "qk_nope_head_dim": pick([8, 16, 24]),
        "qk_rope_head_dim": pick([8, 16]),
        "v_head_dim": pick([8, 16, 24, 40]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


youtu = latent


def deepseek_v3(pick: Pick, config: Config) -> Config:
    return {
        **latent(pick, config),
        "moe_intermediate_size": pick([16, 72, 200]),
        "n_routed_experts": pick([4, 6]),
        "n_shared_experts": pick([1, 2]),
        "num_experts_per_tok": pick([1, 2]),
        "n_group": pick([1, 2]),
        "topk_group": 1,
        "first_k_dense_replace": pick([0, 1, 2]),
        "norm_topk_prob": pick([True, False]),
        "rope_interleave": pick([True, True, False]),
    }


kimi_k2 = deepseek_v3


def gpt_oss(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config),
        **layers(pick, config),
        "intermediate_size": pick([16, 72, 200]),
        "num_local_experts": pick([3, 5]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def falcon(pick: Pick, config: Config) -> Config:
    new = pick([False, False, True])
    taken = {name: config[name] for name in ("num_hidden_layers", "num_attention_heads")}
    heads, groups = taken["num_attention_heads"], config["num_key_value_heads"]
    groups = heads if groups == 1 else groups
    return {
        **taken,
        **TOKENS,
        "hidden_size": heads * config["head_dim"],
        "new_decoder_architecture": new,
        **({"num_kv_heads": groups, "num_ln_in_parallel_attn": pick([None, 1, 2])} if new else {}),
        "multi_query": pick([True, False]),
        "parallel_attn": True,
        "bias": pick([True, False]),
        "ffn_hidden_size": config["intermediate_size"],
        "hidden_dropout": pick(DROPS),
        "attention_dropout": pick(DROPS),
    }


def dots1(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config),
        **layers(pick, config),
        "moe_intermediate_size": pick([16, 72, 200]),
        "n_routed_experts": pick([4, 6]),
        "n_shared_experts": pick([1, 2]),
        "first_k_dense_replace": pick([0, 1, 2]),
        "norm_topk_prob": pick([True, False]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def hunyuan_v1_dense(pick: Pick, config: Config) -> Config:
    return {**grouped(pick, config), "attention_bias": pick([True, False]), "attention_dropout": pick(DROPS)}


def gpt_bigcode(pick: Pick, config: Config) -> Config:
    heads = config["num_attention_heads"]
    return {
        **TOKENS,
        "n_layer": config["num_hidden_layers"],
        "n_head": heads,
        "n_embd": heads * config["head_dim"],
        "n_inner": config["intermediate_size"],
        "n_positions": 64,
        "multi_query": pick([True, True, False]),
        "resid_pdrop": pick(DROPS),
        "embd_pdrop": pick(DROPS),
        "attn_pdrop": pick(DROPS),
    }


def bloom(pick: Pick, config: Config) -> Config:
    return {
        **TOKENS,
        "n_layer": config["num_hidden_layers"],
        "n_head": config["num_attention_heads"],
        "hidden_size": config["num_attention_heads"] * config["head_dim"],
        "hidden_dropout": pick(DROPS),
        "attention_dropout": pick(DROPS),
    }


RELATIVES: Mapping[str, Callable[[Pick, Config], Config]] = {
    **{
        own: draw
        for own, draw in list(globals().items())
        if callable(draw) and own not in ("grouped", "routed", "layers", "latent") and own[0].islower()
    },
    **ENCODERS,
}
