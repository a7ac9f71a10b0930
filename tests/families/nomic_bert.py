"""Nomic BERT: post-norm blocks without biases, with rotary positions and gated networks."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, LAYERS, SMALL, WIDTH, Draw, Fields, of_whole_heads, some, without
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "nomic_bert", "vocab_size": 181, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3,
}  # fmt: skip
VARIANTS = {
    "with experts": {
        **TINY, "architectures": ["NomicBertModel"], "activation_function": "gelu", "qkv_proj_bias": True,
        "mlp_fc1_bias": True, "mlp_fc2_bias": True, "num_experts": 5, "moe_top_k": 2, "moe_every_n_layers": 2,
    },
}  # fmt: skip
LOGITS = {"": TINY, "of other heads": {**TINY, "head_dim": 14, "hidden_act": "gelu", "layer_norm_eps": 1e-3}}
SILENT = {"qkv_proj_bias": False, "rotary_emb_fraction": 1.0, "prenorm": False, "use_flash_attn": True}
REQUIRED = {**LAYERS, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    fields = {**without(of_whole_heads(draw, EVEN), "tie_word_embeddings"), "intermediate_size": draw(WIDTH)}
    sizes = {"type_vocab_size": SMALL, "max_position_embeddings": st.integers(25, 40)}
    return some(draw, fields, head_dim=EVEN, **sizes)


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    config, sizes = of_heads(of, names, max_position_embeddings=of.P, type_vocab_size=of.J)
    return config, {**sizes, "Dt": sizes["D"], "T": of.S, "Vs": of.J}
