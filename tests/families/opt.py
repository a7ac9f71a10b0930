"""OPT: learned positions with two rows in front; post-norm blocks of narrower tokens in one."""

from hypothesis import strategies as st

from tests.families._drawing import ON, PLAIN, SMALL, WIDTH, Draw, Fields, of_whole_heads, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "opt", "vocab_size": 167, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
    "ffn_dim": 71, "max_position_embeddings": 59,
}  # fmt: skip
VARIANTS = {"post-norm": {**TINY, "word_embed_proj_dim": 22, "do_layer_norm_before": False}}
LOGITS = {
    "": TINY,
    **VARIANTS,
    "without biases": {**TINY, "enable_bias": False, "_remove_final_layer_norm": True},
}
REQUIRED = PLAIN


def drawn(draw: Draw) -> Fields:
    fields = of_whole_heads(draw) | {"ffn_dim": draw(WIDTH), "max_position_embeddings": 25}
    switches = dict.fromkeys(("do_layer_norm_before", "enable_bias", "_remove_final_layer_norm"), ON)
    width = st.none() | SMALL | st.just(fields["hidden_size"])
    return some(draw, fields, word_embed_proj_dim=width, **switches)


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads ffn_dim"
    config, sizes = of_heads(of, names, max_position_embeddings=of.P, tie_word_embeddings=of.on[0])
    return {**config, "enable_bias": of.on[1]}, {**sizes, "P": of.P + 2}  # two rows in front
