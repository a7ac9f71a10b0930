"""ModernBERT: an encoder with windows that see both ways, and a first block of its own."""

from hypothesis import strategies as st

from tests.families._drawing import LAYERS, ON, WIDTH, Draw, Fields, layer_types, of_whole_heads, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "modernbert", "vocab_size": 139, "hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 6,
    "intermediate_size": 71, "max_position_embeddings": 59, "local_attention": 6, "pad_token_id": 0,
}  # fmt: skip
BIASED = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False}
VARIANTS = {"with biases": {**TINY, **BIASED, "tie_word_embeddings": False}}
LOGITS = {"": TINY, "with biases": {**VARIANTS["with biases"], "global_attn_every_n_layers": 2, "local_attention": 9}}
SILENT = {"reference_compile": False, "initializer_cutoff_factor": 2.0, "sparse_prediction": False}
REQUIRED = {**LAYERS, "num_attention_heads": 4, "pad_token_id": 0}
SWITCHES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias", "decoder_bias")


def drawn(draw: Draw) -> Fields:
    fields = {**of_whole_heads(draw, st.integers(1, 4).map(lambda half: 2 * half)), "pad_token_id": 0}
    some(draw, fields, intermediate_size=WIDTH, local_attention=st.integers(2, 12), **dict.fromkeys(SWITCHES, ON))
    some(
        draw, fields, global_attn_every_n_layers=st.integers(1, 4), classifier_pooling=st.sampled_from(["cls", "mean"])
    )
    return layer_types(draw, fields)


def sized(of: Distinct) -> Sized:
    """One block: all others have a norm more."""
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    config, sizes = of_heads(of, names, max_position_embeddings=of.P)
    config |= {"num_hidden_layers": 1, "pad_token_id": 0}
    return config, {**sizes, "L": 1, "Dt": sizes["D"], "T": of.S}
