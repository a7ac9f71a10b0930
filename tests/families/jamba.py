"""Jamba: Mamba and attention, dense layers and experts."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "jamba", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 71, "max_position_embeddings": 103,
    "num_experts": 7, "num_experts_per_tok": 4, "attn_layer_period": 3, "attn_layer_offset": 1,
    "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 5, "mamba_d_conv": 8, "mamba_expand": 2,
    "mamba_dt_rank": 11, "mamba_proj_bias": True,
}  # fmt: skip
LOGITS = {"": {**TINY, "num_experts": 1, "num_experts_per_tok": 1}}  # dense layers: the router's weights are not summed
SILENT = {"use_mamba_kernels": False, "mamba_inner_layernorms": True, "num_logits_to_keep": 1}
REQUIRED = {"num_hidden_layers": 5}


def drawn(draw: Draw) -> Fields:
    """At least one layer with attention, without which the class does not run."""
    fields = llama_like(draw, null_kv=False)
    layers, count = fields["num_hidden_layers"], draw(SMALL)
    fields |= {"num_experts": count, "num_experts_per_tok": draw(st.integers(1, count))}
    fields["attn_layer_offset"] = draw(st.integers(0, layers - 1))
    fields["attn_layer_period"] = fields["attn_layer_offset"] + draw(st.integers(1, 3))
    fields["expert_layer_offset"] = draw(st.integers(0, 3))
    fields["expert_layer_period"] = fields["expert_layer_offset"] + draw(st.integers(1, 3))
    some(draw, fields, mamba_d_state=SMALL, mamba_d_conv=st.integers(1, 9), mamba_expand=st.integers(1, 3))
    return some(draw, fields, mamba_dt_rank=st.just("auto") | SMALL, mamba_conv_bias=ON, mamba_proj_bias=ON)


def sized(of: Distinct) -> Sized:
    """Mamba alone, or attention alone; experts in all layers."""
    every = {"attn_layer_period": 1, "attn_layer_offset": 0, "expert_layer_period": 1, "expert_layer_offset": 0}
    config, sizes = routed(grouped(of, **every), of.more, "num_experts", "intermediate_size")
    if of.seed % 2:
        return config, sizes
    Kc, Ns, Rt = of.more[3:6]
    own = {letter: sizes[letter] for letter in sizes if letter not in "KGHN"}
    own |= {"Kc": Kc, "Ns": Ns, "Rt": Rt, "Dx": 2 * of.D, "Dz": 4 * of.D, "Rx": Rt + 2 * Ns}
    config |= {"attn_layer_period": of.L + 1, "attn_layer_offset": of.L, "mamba_d_conv": Kc, "mamba_d_state": Ns}
    return {**config, "mamba_dt_rank": Rt, "mamba_conv_bias": of.on[1], "mamba_proj_bias": of.on[2]}, own
