"""Zamba2: Mamba-2 in every layer, and blocks that some layers share."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, VOCAB, WIDTH, Draw, Fields, some
from tests.families._mamba2 import letters
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "zamba2", "vocab_size": 211, "hidden_size": 80, "num_hidden_layers": 5, "num_attention_heads": 8,
    "intermediate_size": 71, "max_position_embeddings": 103, "num_mem_blocks": 1, "adapter_rank": 17,
    "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"], "use_shared_attention_adapter": True,
    "use_mem_rope": True, "add_bias_linear": True, "n_mamba_heads": 15, "mamba_ngroups": 3, "mamba_d_state": 7,
    "mamba_d_conv": 6, "mamba_expand": 3, "chunk_size": 12, "time_step_min": 1e-9,
}  # fmt: skip
GROUPED = {**TINY, "num_key_value_heads": 2, "use_shared_attention_adapter": False, "use_mem_rope": False}
VARIANTS = {"two blocks in turn": {**GROUPED, "num_mem_blocks": 2, "add_bias_linear": False}}
SMALLER = {"hidden_size": 48, "num_attention_heads": 6, "n_mamba_heads": 6, "mamba_ngroups": 2, "mamba_expand": 2}
SMALLER |= {"adapter_rank": 13, "mamba_d_state": 5, "mamba_d_conv": 8}
"""Sizes at which the class's own casts to float32 stay small."""
LOGITS = {
    "": {**TINY, **SMALLER, "num_mem_blocks": 2},
    "with few keys": {**GROUPED, **SMALLER},
}
SILENT = {
    "use_conv_bias": False, "use_mamba_kernels": False, "use_mem_eff_path": True, "num_logits_to_keep": 1,
    "kv_channels": 8, "num_query_groups": 6, "attention_hidden_size": 160,
}  # fmt: skip
REQUIRED: Fields = {}


def drawn(draw: Draw) -> Fields:
    """At least one layer that calls a block, without which the class does not run; blocks in turn, and more of them
    than there are calls."""
    heads = draw(SMALL) * (kv := draw(SMALL))
    hidden, rotated = heads * draw(SMALL), draw(ON)
    fields: Fields = {"hidden_size": hidden, "num_attention_heads": heads, "vocab_size": draw(VOCAB)}
    kinds = draw(st.lists(st.sampled_from(["mamba", "linear_attention", "hybrid"]), max_size=5))
    kinds.insert(draw(st.integers(0, len(kinds))), "hybrid")
    calls = [number for number, kind in enumerate(kinds) if kind == "hybrid"]
    fields |= {"layers_block_type": kinds, "num_hidden_layers": len(kinds), "use_mem_rope": rotated}
    expand = draw(st.integers(1, 2))
    own = draw(st.sampled_from([n for n in range(1, hidden * expand + 1) if hidden * expand % n == 0 and n < 13]))
    fields |= {"mamba_expand": expand, "n_mamba_heads": own}
    fields["mamba_ngroups"] = draw(st.sampled_from([n for n in range(1, own + 1) if own % n == 0]))
    if draw(ON):
        fields |= {"use_shared_attention_adapter": True}
    else:
        fields |= {"num_key_value_heads": draw(st.sampled_from([kv, None]))}
    sizes = {"mamba_d_state": st.integers(2, 7), "mamba_d_conv": st.integers(1, 9), "chunk_size": st.integers(2, 7)}
    some(draw, fields, **sizes, intermediate_size=st.none() | WIDTH, adapter_rank=SMALL, add_bias_linear=ON)
    some(draw, fields, hybrid_layer_ids=st.just(calls), head_dim=st.just(2 * hidden // heads), use_long_context=ON)
    return some(draw, fields, num_mem_blocks=st.integers(1, 3), tie_word_embeddings=st.just(True))


def sized(of: Distinct) -> Sized:
    """One shared block in all layers, or Mamba-2 alone in all, by turns."""
    Km, Gm, Ns, Kc, Pc, Ra = of.more[-6:]
    N = of.K * of.G
    hidden, expand = N * Km * Gm, 3
    sizes = {**of.letters("VLBTS"), "D": hidden, **letters(of, (Km, Gm, expand * N), Ns, Kc, Pc)}
    config = {
        "vocab_size": of.V, "hidden_size": hidden, "num_hidden_layers": of.L, "num_attention_heads": N,
        "num_key_value_heads": of.K, "intermediate_size": of.F, "adapter_rank": Ra, "mamba_expand": expand,
        "n_mamba_heads": Km * Gm, "mamba_ngroups": Km, "mamba_d_state": Ns, "mamba_d_conv": Kc, "chunk_size": Pc,
        "num_mem_blocks": 1, "add_bias_linear": of.on[1], "use_mem_rope": of.on[2],
        "layers_block_type": ["mamba"] * of.L,
    }  # fmt: skip
    if of.seed % 2:
        return config, sizes
    own = {"K": of.K, "G": of.G, "N": N, "H": 2 * Km * Gm, "F": of.F, "Ra": Ra, "Dj": 2 * hidden, "Do": hidden}
    return {**config, "layers_block_type": ["hybrid"] * of.L}, {**sizes, **own}
