"""Gemma 2: windows in every other layer, norms before and behind, bounded scores and logits."""

from hypothesis import strategies as st

from tests.families._drawing import ON, PLAIN, WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "gemma2", "vocab_size": 113, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 57,
    "sliding_window": 5, "query_pre_attn_scalar": 12,
}  # fmt: skip
LOGITS = {"": TINY, "unbounded": {**TINY, "attn_logit_softcapping": None, "final_logit_softcapping": None}}
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    fields = some(draw, llama_like(draw, null_kv=False), attention_bias=ON)
    caps = {name: st.none() | st.just(30.0) for name in ("final_logit_softcapping", "attn_logit_softcapping")}
    return some(draw, layer_types(draw, fields | {"sliding_window": draw(WINDOW)}), **caps)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1], layer_types=["full_attention"] * of.L)
