"""MiniMax: lightning attention, softmax attention, experts."""

from hypothesis import strategies as st

from tests.families._drawing import Draw, Fields, experts, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

FULL, LINEAR = "full_attention", "linear_attention"
TINY = {
    "model_type": "minimax", "vocab_size": 103, "hidden_size": 50, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37, "max_position_embeddings": 59,
    "num_local_experts": 7, "num_experts_per_tok": 4, "layer_types": [LINEAR, FULL, LINEAR], "block_size": 12,
}  # fmt: skip
# The reference's routing is fixed.
LOGITS = {
    "of every expert": {
        **TINY, "num_experts_per_tok": 7, "linear_attn_alpha_factor": 1.5, "linear_attn_beta_factor": 0.5,
        "full_attn_alpha_factor": 0.75, "mlp_beta_factor": 1.25,
    },
}  # fmt: skip
REQUIRED = {}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | experts(draw, "num_local_experts")
    layers = fields["num_hidden_layers"]
    kinds = st.lists(st.sampled_from([FULL, LINEAR]), min_size=layers, max_size=layers)
    return some(draw, fields, layer_types=st.none() | kinds, block_size=st.integers(1, 9))


def sized(of: Distinct) -> Sized:
    """Softmax attention in all layers, or lightning attention in all, by turns."""
    config, sizes = routed(grouped(of), of.more, "num_local_experts", "intermediate_size")
    kind = LINEAR if of.seed % 2 else FULL
    config |= {"layer_types": [kind] * of.L, "block_size": of.P}
    if kind == FULL:
        return config, sizes
    sizes = {letter: size for letter, size in sizes.items() if letter not in "KGHN"}
    own = {"Nl": of.K * of.G, "Hl": of.H, "Ol": of.H, "Pc": of.P, "Qc": of.P, "Nc": -(-of.T // of.P), "Tr": 0}
    return config, sizes | own
