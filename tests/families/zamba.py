"""Zamba: Mamba with heads in every layer, and one block that some layers share."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, VOCAB, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "zamba", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 103, "n_mamba_heads": 4,
    "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"], "mamba_d_state": 7, "mamba_d_conv": 5,
    "mamba_expand": 3, "mamba_dt_rank": 11, "mamba_proj_bias": True,
}  # fmt: skip
LOGITS = {"": TINY, "by period": {**TINY, "layers_block_type": None, "attn_layer_period": 2, "attn_layer_offset": 1}}
SILENT = {"use_mamba_kernels": False, "num_logits_to_keep": 1, "attention_hidden_size": 96}
REQUIRED = {"num_hidden_layers": 8}  # two call the block; every size has a default


def drawn(draw: Draw) -> Fields:
    """At least two layers that call the block: the class does not build with one, nor run without any."""
    heads = draw(SMALL) * (kv := draw(SMALL))
    hidden = heads * draw(SMALL)
    fields: Fields = {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv}
    fields |= {"vocab_size": draw(VOCAB), "intermediate_size": draw(WIDTH)}
    if draw(ON):
        kinds = draw(st.lists(st.sampled_from(["mamba", "linear_attention", "hybrid"]), max_size=4))
        kinds = [*kinds, "hybrid", "hybrid"]
        fields |= {"layers_block_type": draw(st.permutations(kinds)), "num_hidden_layers": len(kinds)}
    else:
        fields |= {"num_hidden_layers": draw(st.integers(4, 6)), "attn_layer_period": 1, "attn_layer_offset": 0}
    expand = draw(st.integers(1, 2))
    fields["mamba_expand"] = expand
    fields["n_mamba_heads"] = draw(st.sampled_from([n for n in range(1, 13) if hidden * expand % n == 0]))
    some(draw, fields, mamba_d_state=SMALL, mamba_d_conv=st.integers(1, 9), mamba_dt_rank=st.just("auto") | SMALL)
    some(draw, fields, mamba_conv_bias=ON, mamba_proj_bias=ON, attention_head_dim=st.just(2 * hidden // heads))
    return some(draw, fields, tie_word_embeddings=st.just(True))


def sized(of: Distinct) -> Sized:
    """The shared block in all layers, or Mamba alone in all, by turns."""
    Nh, half, Ns, Kc, Rt = of.more[-5:]
    N, expand = of.K * of.G, 3
    hidden = N * Nh * half
    sizes = {**of.letters("VLBTS"), "D": hidden, "Nh": Nh, "Hh": expand * N * half, "Ns": Ns, "Kc": Kc, "Rt": Rt}
    sizes |= {"Dx": expand * hidden, "Dz": 2 * expand * hidden, "Rx": Rt + 2 * Ns}
    config = {
        "vocab_size": of.V, "hidden_size": hidden, "num_hidden_layers": of.L, "num_attention_heads": N,
        "num_key_value_heads": of.K, "intermediate_size": of.F, "n_mamba_heads": Nh, "mamba_d_state": Ns,
        "mamba_d_conv": Kc, "mamba_expand": expand, "mamba_dt_rank": Rt, "mamba_conv_bias": of.on[1],
        "mamba_proj_bias": of.on[2], "layers_block_type": ["mamba"] * of.L,
    }  # fmt: skip
    if of.seed % 2:
        return config, sizes
    own = {"K": of.K, "G": of.G, "N": N, "H": 2 * Nh * half, "F": of.F, "Dj": 2 * hidden, "Do": hidden}
    return {**config, "layers_block_type": ["hybrid"] * of.L}, {**sizes, **own}
