"""Bamba: Mamba-2 and attention with half of each head rotated."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, Draw, Fields, llama_like, some
from tests.families._hybrids import mixers, sized_mixers
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "bamba", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 71, "max_position_embeddings": 103,
    "attn_layer_indices": [1], "mamba_n_heads": 6, "mamba_n_groups": 2, "mamba_d_state": 5, "mamba_d_conv": 8,
    "mamba_chunk_size": 12, "mamba_proj_bias": True, "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
SILENT = {"num_logits_to_keep": 1, "z_loss_coefficient": 0.1, "mamba_d_head": 16}
REQUIRED = {"num_hidden_layers": 3, "attn_layer_indices": [1]}


def drawn(draw: Draw) -> Fields:
    """At least one layer with attention, without which the class does not run."""
    fields = llama_like(draw)
    fields |= {"hidden_size": 2 * fields["hidden_size"], "head_dim": 4 * draw(SMALL)}
    some(draw, fields, attention_bias=ON, mlp_bias=ON)
    attends = [draw(st.integers(0, fields["num_hidden_layers"] - 1)), *draw(st.lists(st.integers(0, 4)))]
    return fields | {"attn_layer_indices": attends} | mixers(draw, fields["hidden_size"])


def sized(of: Distinct) -> Sized:
    """Attention in all layers, or Mamba-2 in all, by turns."""
    config, sizes = grouped(of)
    if of.seed % 2:
        return sized_mixers(of, config, sizes)
    divides = {"mamba_n_heads": 1, "mamba_expand": 1}
    own = {"head_dim": 2 * of.H, "attn_layer_indices": [*range(of.L)], **divides}
    return {**config, **own}, {**sizes, "H": 2 * of.H, "Hr": of.H}
