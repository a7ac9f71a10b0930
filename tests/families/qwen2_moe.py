"""Qwen2's experts: in some layers, beside a shared network with a gate of one number."""

from tests.families._drawing import ON, PLAIN, SMALL, Draw, Fields, llama_like, mixed_layers, qwen_windows, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "qwen2_moe", "vocab_size": 107, "hidden_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
    "max_position_embeddings": 53, "moe_intermediate_size": 37, "shared_expert_intermediate_size": 29,
    "num_experts": 7, "num_experts_per_tok": 4, "decoder_sparse_step": 2, "mlp_only_layers": [3],
    "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 3,
}  # fmt: skip
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    fields = qwen_windows(draw, llama_like(draw, null_kv=False)) | mixed_layers(draw)
    return some(draw, {**fields, "shared_expert_intermediate_size": draw(SMALL)}, qkv_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = routed(grouped(of), of.more, "num_experts", "moe_intermediate_size")
    return {**config, "shared_expert_intermediate_size": of.more[3]}, {**sizes, "Fs": of.more[3], "U": 1}
