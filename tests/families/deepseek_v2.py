"""DeepSeek-V2: keys and values from a latent; experts beside shared networks, dense layers first."""

from tests.families import _sizes
from tests.families._drawing import LAYERS, ON, Draw, Fields, latent, latent_forms, some
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "deepseek_v2", "vocab_size": 139, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 65, "moe_intermediate_size": 37,
    "n_routed_experts": 7, "n_shared_experts": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
    "q_lora_rank": None, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
    "n_group": 1, "topk_group": 1, "attention_bias": True, "mlp_bias": True, "latent_attention": "expanded",
}  # fmt: skip
VARIANTS = {
    "absorbed": {**TINY, "q_lora_rank": 22, "latent_attention": "absorbed"},
    "unpacked": {**TINY, "latent_attention": "unpacked"},
}
# The reference's routing is fixed: dense layers only, or every expert for every token.
LOGITS = {
    **latent_forms(TINY),
    "of every expert": {**TINY, "num_experts_per_tok": 7, "latent_attention": "absorbed"},
}
REQUIRED = {**LAYERS, "num_attention_heads": 4, "num_experts_per_tok": 3}


def drawn(draw: Draw) -> Fields:
    fields = latent(draw, 1)
    fields |= {name: 2 * fields[name] for name in ("kv_lora_rank", "qk_nope_head_dim")}  # it turns pairs in place
    return some(draw, fields, mlp_bias=ON) if fields["n_shared_experts"] else fields


def sized(of: Distinct) -> Sized:
    return _sizes.sized_latent(of, ranked=False)
