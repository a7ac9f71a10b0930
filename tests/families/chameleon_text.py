"""Chameleon's language model: a LayerNorm of each head's queries and keys."""

from tests.families._drawing import ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "chameleon_text", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 64,
}  # fmt: skip
VARIANTS = {"norms behind": {**TINY, "swin_norm": True, "attention_bias": True, "mlp_bias": True}}
LOGITS = {"": TINY, **VARIANTS}
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw, null_kv=False, head_dim=False), swin_norm=ON, attention_bias=ON, mlp_bias=ON)


def sized(of: Distinct) -> Sized:
    own = {"num_key_value_heads": of.K, "intermediate_size": of.F}
    config, sizes = parts_of_hidden(of, attention_bias=of.on[1], swin_norm=of.on[2], **own)
    half = config["hidden_size"]  # an even number for each head
    return {**config, "hidden_size": 2 * half}, {**sizes, "H": 2 * sizes["H"], "D": 2 * half}
