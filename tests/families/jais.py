"""Jais: no class stands behind it; a table of positions or ALiBi, a network of two matrices or of three."""

from tests.families._sizes import Distinct, Sized, of_heads

LEARNED = {
    "model_type": "jais", "vocab_size": 449, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 37, "n_inner": 67,
    "mup_embeddings_scale": 9.1, "mup_scale_qk_dot_by_d": True, "mup_width_scale": 0.2, "mup_output_alpha": 1.1,
}  # fmt: skip
TINY = {**LEARNED, "position_embedding_type": "alibi", "activation_function": "swiglu"}
VARIANTS = {"learned positions": LEARNED}
SILENT = {"scale_attn_weights": True}


def sized(of: Distinct) -> Sized:
    own = {"position_embedding_type": "alibi", "activation_function": "swiglu", "tie_word_embeddings": of.on[0]}
    return of_heads(of, "vocab_size n_embd n_layer n_head n_inner", n_positions=of.P, **own)
