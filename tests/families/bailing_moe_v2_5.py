"""Ling 2.5: lightning attention in most layers, latent attention in others, experts; where all attend, DeepSeek-V3."""

from tests.families import bailing_moe_linear, deepseek_v3
from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct, Sized, sized_latent

TINY = {
    **bailing_moe_linear.TINY, "model_type": "bailing_moe_v2_5", "kv_lora_rank": 14, "q_lora_rank": 22,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
    "n_group": 1, "topk_group": 1, "latent_attention": "expanded",
}  # fmt: skip
LIGHTNING = {**TINY, "layer_group_size": 3}
VARIANTS = {
    "with lightning attention": LIGHTNING,
    "queries without a latent": {**LIGHTNING, "q_lora_rank": None, "use_qkv_bias": True},
}
LOGITS = {"": {**TINY, "first_k_dense_replace": 4}}
RUN_BY = "DeepseekV3"
REQUIRED = bailing_moe_linear.REQUIRED
SILENT = bailing_moe_linear.SILENT


def drawn(draw: Draw) -> Fields:
    return bailing_moe_linear.spelled(deepseek_v3.drawn(draw))


def sized(of: Distinct) -> Sized:
    """Latent attention in every layer."""
    config, sizes = sized_latent(of, ranked=of.on[0])
    own = {"layer_group_size": 1, "group_norm_size": 1, "use_qkv_bias": config.pop("attention_bias")}
    own |= {"num_experts": config.pop("n_routed_experts"), "num_shared_experts": config.pop("n_shared_experts")}
    return {**config, **own}, sizes
