"""DeepSeek-V3: a latent for queries too; experts chosen in groups."""

from hypothesis import strategies as st

from tests.families import _sizes
from tests.families._drawing import LAYERS, Draw, Fields, in_forms, latent, latent_forms
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "deepseek_v3", "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 67,
    "moe_intermediate_size": 37, "n_routed_experts": 15, "n_shared_experts": 2, "num_experts_per_tok": 3,
    "first_k_dense_replace": 1, "q_lora_rank": 22, "kv_lora_rank": 14, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 10, "n_group": 3, "topk_group": 2, "latent_attention": "expanded",
}  # fmt: skip
VARIANTS = in_forms(TINY, "absorbed", "unpacked")
LOGITS = latent_forms(TINY)  # dense layers only: the class weighs experts by sigmoids
REQUIRED = {**LAYERS, "num_attention_heads": 128}


def drawn(draw: Draw) -> Fields:
    return latent(draw, draw(st.integers(1, 3)))


def sized(of: Distinct) -> Sized:
    return _sizes.sized_latent(of, ranked=True)
