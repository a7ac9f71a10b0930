"""Youtu: DeepSeek-V3's dense layers."""

from tests.families import _sizes
from tests.families._drawing import Draw, Fields, in_forms, latent, latent_forms, without
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "youtu", "vocab_size": 229, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 51, "q_lora_rank": 22,
    "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10, "attention_bias": True,
    "latent_attention": "expanded",
}  # fmt: skip
ROUTED = (
    "moe_intermediate_size n_routed_experts num_experts_per_tok n_shared_experts first_k_dense_replace n_group"
    " topk_group"
).split()
VARIANTS = in_forms(TINY, "absorbed", "unpacked")
LOGITS = latent_forms(TINY, {})
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return without(latent(draw, 1), *ROUTED)


def sized(of: Distinct) -> Sized:
    config, sizes = _sizes.sized_latent(of, ranked=True)
    dense = {letter: size for letter, size in sizes.items() if letter not in ("A", "E", "Fe", "Fs")}
    return {**without(config, *ROUTED), "intermediate_size": of.F + 200}, {**dense, "F": of.F + 200}
