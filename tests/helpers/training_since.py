"""Random small models of families whose training step was measured since: relatives of those before, and others."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tests.helpers.training_relatives import DROPS, TOKENS, grouped, latent, layers, routed

Pick: TypeAlias = Callable[[list[Any]], Any]
Config: TypeAlias = dict[str, Any]


def vaultgemma(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        **layers(pick, config),
        "hidden_activation": pick(["gelu", "gelu_pytorch_tanh"]),
        "attention_bias": pick([True, False]),
        "query_pre_attn_scalar": 16,
        "final_logit_softcapping": pick([None, 30.0]),
        "attn_logit_softcapping": pick([None, 50.0]),
        "attention_dropout": pick(DROPS),
    }


def granitemoe(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config, own_head=False),
        "intermediate_size": pick([16, 72, 200]),
        "num_local_experts": pick([3, 5]),
        "attention_bias": pick([True, False]),
        "embedding_multiplier": pick([1.0, 12.0]),
        "logits_scaling": pick([1.0, 8.0]),
        "residual_multiplier": pick([1.0, 0.22]),
        "attention_multiplier": pick([1.0, 0.1]),
        "attention_dropout": pick(DROPS),
    }


def glm4_moe_lite(pick: Pick, config: Config) -> Config:
    return {
        **latent(pick, config),
        "moe_intermediate_size": pick([16, 72, 200]),
        "n_routed_experts": pick([4, 6]),
        "n_shared_experts": pick([1, 2]),
        "num_experts_per_tok": pick([1, 2]),
        "norm_topk_prob": pick([True, False]),
        "rope_interleave": pick([True, True, False]),
        "mlp_layer_types": pick([None, [pick(["dense", "sparse"]) for _ in range(config["num_hidden_layers"])]]),
    }


def minimax_m2(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config),
        "rotary_dim": pick([4, 8]),
        "intermediate_size": pick([16, 72, 200]),
        "num_local_experts": pick([4, 6]),
        "attention_dropout": pick(DROPS),
    }


def gpt_neo(pick: Pick, config: Config) -> Config:
    heads, count = config["num_attention_heads"], config["num_hidden_layers"]
    kinds = [pick(["global", "local"]) for _ in range(count)]
    return {
        **TOKENS,
        "num_layers": count,
        "num_heads": heads,
        "hidden_size": heads * config["head_dim"],
        "intermediate_size": config["intermediate_size"],
        "max_position_embeddings": 64,
        "attention_types": [[[kind], 1] for kind in kinds],
        "window_size": pick([2, 8, 40]),
        "activation_function": pick(["gelu_new", "gelu"]),
        "resid_dropout": pick(DROPS),
        "embed_dropout": pick(DROPS),
        "attention_dropout": pick(DROPS),
    }


def gptj(pick: Pick, config: Config) -> Config:
    heads = pick([1, 2, 3])
    return {
        **TOKENS,
        "n_layer": config["num_hidden_layers"],
        "n_head": heads,
        "n_embd": heads * config["head_dim"],
        "n_inner": config["intermediate_size"],
        "n_positions": 64,
        "rotary_dim": pick([4, 8]),
        "activation_function": pick(["gelu_new", "gelu_new", "gelu"]),
        "resid_pdrop": pick(DROPS),
        "embd_pdrop": pick(DROPS),
        "attn_pdrop": pick(DROPS),
    }


def codegen(pick: Pick, config: Config) -> Config:
    heads = pick([8, 8, 12])
    return {**gptj(pick, config), "n_head": heads, "n_embd": heads * config["head_dim"]}


def mpt(pick: Pick, config: Config) -> Config:
    own = {"clip_qkv": pick([None, None, 8.0]), "softmax_scale": pick([None, 0.5])}
    return {
        **TOKENS,
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "d_model": config["num_attention_heads"] * config["head_dim"],
        "max_seq_len": 64,
        "attn_config": own,
    }


def persimmon(pick: Pick, config: Config) -> Config:
    heads = pick([1, 2, 3, 6])
    return {
        **TOKENS,
        **{name: config[name] for name in ("num_hidden_layers", "intermediate_size")},
        "num_attention_heads": heads,
        "hidden_size": heads * config["head_dim"],
        "max_position_embeddings": 64,
        "partial_rotary_factor": pick([0.5, 1.0]),
        "qk_layernorm": pick([True, True, False]),
        "hidden_act": pick(["relu2", "relu2", "gelu"]),
        "hidden_dropout": pick(DROPS),
        "attention_dropout": pick(DROPS),
    }


SINCE: Mapping[str, Callable[[Pick, Config], Config]] = {
    own.__name__: own
    for own in (
        vaultgemma,
        granitemoe,
        glm4_moe_lite,
        minimax_m2,
        gpt_neo,
        gptj,
        codegen,
        mpt,
        persimmon,
    )
}
