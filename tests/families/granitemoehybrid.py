"""Granite 4.0: Mamba-2 and attention, experts beside a shared network, constants."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, Draw, Fields, llama_like, some
from tests.families._hybrids import mixers, sized_mixers
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "granitemoehybrid", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 37,
    "max_position_embeddings": 103, "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 6,
    "mamba_n_groups": 2, "mamba_d_state": 5, "mamba_d_conv": 8, "mamba_chunk_size": 12, "mamba_proj_bias": True,
    "attention_bias": True, "shared_intermediate_size": 71, "num_local_experts": 7, "num_experts_per_tok": 4,
    "position_embedding_type": "nope", "embedding_multiplier": 3.0, "logits_scaling": 4.0,
    "residual_multiplier": 0.22, "attention_multiplier": 0.13,
}  # fmt: skip
LOGITS = {
    "of every expert": {**TINY, "num_experts_per_tok": 7},  # the reference's routing is fixed
    "without experts": {**TINY, "num_local_experts": 0, "position_embedding_type": "rope"},
}
SILENT = {"normalization_function": "rmsnorm", "init_method": "mup", "mamba_d_head": 16}
REQUIRED = {"num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}


def drawn(draw: Draw) -> Fields:
    """At least one layer with attention, without which the class does not run."""
    fields, count = llama_like(draw), draw(st.integers(0, 6))
    layers = fields["num_hidden_layers"]
    kinds = draw(st.lists(st.sampled_from(["linear_attention", "full_attention"]), min_size=layers, max_size=layers))
    kinds[draw(st.integers(0, layers - 1))] = "full_attention"
    fields |= {
        "layer_types": kinds,
        "num_local_experts": count,
        "num_experts_per_tok": draw(st.integers(1, count or 1)),
    }
    some(draw, fields, attention_bias=ON, head_dim=EVEN, shared_intermediate_size=SMALL)
    some(draw, fields, position_embedding_type=st.none() | st.just("rope"))
    return fields | mixers(draw, fields["hidden_size"])


def sized(of: Distinct) -> Sized:
    """Attention in all layers, or Mamba-2 in all, by turns; experts in all."""
    config, sizes = routed(grouped(of), of.more, "num_local_experts", "intermediate_size")
    config, sizes = {**config, "shared_intermediate_size": of.F}, {**sizes, "Fs": of.F}
    if of.seed % 2:
        return sized_mixers(of, {**config, "layer_types": None}, sizes)
    own = {"layer_types": ["full_attention"] * of.L, "mamba_n_heads": 1, "mamba_expand": 1}
    return {**config, **own}, sizes
