"""Ling 2.0 linear: lightning attention in most layers, dense layers, then experts; where all attend, GLM-4.5."""

from tests.families import glm4_moe
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "bailing_moe_linear", "vocab_size": 103, "hidden_size": 50, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 37,
    "max_position_embeddings": 59, "layer_group_size": 1, "group_norm_size": 3, "moe_intermediate_size": 19,
    "num_experts": 7, "num_experts_per_tok": 4, "num_shared_experts": 2,
}  # fmt: skip
LIGHTNING = {**TINY, "layer_group_size": 3}
VARIANTS = {
    "with lightning attention": LIGHTNING,
    "with biases": {
        **LIGHTNING,
        "use_qkv_bias": True,
        "use_bias": True,
        "use_qk_norm": False,
        "tie_word_embeddings": True,
    },
}
LOGITS = {"": {**TINY, "first_k_dense_replace": 4}}  # the class weighs experts by sigmoids
RUN_BY = "Glm4Moe"
REQUIRED = {"num_hidden_layers": 2, "layer_group_size": 1}  # every size has a default
NAMES = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts", "attention_bias": "use_qkv_bias"}
SILENT = {"score_function": "sigmoid", "router_dtype": "fp32", "num_nextn_predict_layers": 1}


def spelled(config: Fields) -> Fields:
    """Fields of a class as Ling's files spell them, where every layer attends."""
    return {**{NAMES.get(name, name): value for name, value in config.items()}, "layer_group_size": 1}


def drawn(draw: Draw) -> Fields:
    return spelled(glm4_moe.drawn(draw))


def sized(of: Distinct) -> Sized:
    """Every layer attends: no number of layers has lightning attention alone."""
    config, sizes = routed(grouped(of, layer_group_size=1), of.more, "num_experts", "moe_intermediate_size")
    turned = {"partial_rotary_factor": 1.0, "group_norm_size": 1, "first_k_dense_replace": 0}
    return {**config, **turned, "num_shared_experts": 1}, {**sizes, "Fs": sizes["Fe"]}
