"""Falcon: parallel blocks; 40B's grouped heads, or one key head, rotary positions or ALiBi."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, PLAIN, SMALL, VOCAB, WIDTH, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "falcon", "vocab_size": 163, "hidden_size": 60, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_kv_heads": 2, "new_decoder_architecture": True, "ffn_hidden_size": 71,
    "max_position_embeddings": 39,
}  # fmt: skip
ONE_KEY_HEAD = {**without(TINY, "num_kv_heads"), "new_decoder_architecture": False}
VARIANTS = {
    "one key head": ONE_KEY_HEAD,
    "ALiBi": {**ONE_KEY_HEAD, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True},
}
# ALiBi is left out: the class scales the distances too, and rounds them to bfloat16.
LOGITS = {
    "": TINY,
    "one norm": {**TINY, "num_ln_in_parallel_attn": 1},
    "one key head": ONE_KEY_HEAD,
    "every head its keys": {**ONE_KEY_HEAD, "multi_query": False, "bias": True},
    "sequential": {**ONE_KEY_HEAD, "parallel_attn": False},
}
SILENT = {"n_head": 6, "n_layer": 2, "n_embed": 60, "n_head_kv": 2, "n_inner": 71}
BY_HEAD = True
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    """40B's layout with any number of key heads, or 7B's and 1B's."""
    group, kv = draw(SMALL), draw(SMALL)
    heads, alibi = group * kv, draw(ON)
    fields = {"hidden_size": heads * draw(EVEN), "num_attention_heads": heads, "alibi": alibi}
    fields |= {"num_hidden_layers": draw(st.integers(1, 3)), "vocab_size": draw(VOCAB)}
    some(draw, fields, bias=ON, tie_word_embeddings=ON, ffn_hidden_size=WIDTH, multi_query=ON)
    if draw(ON):
        fields["new_decoder_architecture"] = True
        norms = st.none() | st.integers(1, 2)
        return some(draw, fields, num_kv_heads=st.none() | st.just(kv), num_ln_in_parallel_attn=norms)
    some(draw, fields, parallel_attn=ON, new_decoder_architecture=st.just(False))
    # The 7B's file says a number of key heads and has one.
    return some(draw, fields, num_kv_heads=st.just(heads)) if fields.get("multi_query", True) else fields


def sized(of: Distinct) -> Sized:
    config, sizes = parts_of_hidden(of, num_kv_heads=of.K, ffn_hidden_size=of.F, bias=of.on[1])
    return {**config, "new_decoder_architecture": True}, sizes
