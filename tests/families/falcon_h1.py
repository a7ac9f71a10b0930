"""Falcon-H1: Mamba-2 and attention side by side in every layer."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, Draw, Fields, llama_like, some
from tests.families._hybrids import mixers
from tests.families._mamba2 import letters
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "falcon_h1", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 71, "max_position_embeddings": 103,
    "mamba_d_ssm": 280, "mamba_n_heads": 28, "mamba_n_groups": 4, "mamba_d_state": 5, "mamba_d_conv": 8,
    "mamba_chunk_size": 12,
}  # fmt: skip
MULTIPLIED = {
    "lm_head_multiplier": 0.5, "embedding_multiplier": 2.5, "mlp_multipliers": [0.8, 1.5], "key_multiplier": 0.6,
    "attention_out_multiplier": 0.9, "attention_in_multiplier": 1.4, "ssm_multipliers": [0.75, 1.5, 1.25, 0.625, 0.375],
    "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.35,
}  # fmt: skip
BIASED = dict.fromkeys(("attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"), True)
VARIANTS = {"normed and biased": {**TINY, **BIASED, "mamba_rms_norm": True, "mamba_norm_before_gate": False}}
LOGITS = {
    "": {**TINY, **MULTIPLIED},
    "normed in front of the gate": {**TINY, **MULTIPLIED, **BIASED, "mamba_rms_norm": True},
    "normed behind the gate": {**TINY, **MULTIPLIED, "mamba_rms_norm": True, "mamba_norm_before_gate": False},
}
SILENT = {"num_logits_to_keep": 1, "mamba_use_mlp": True, "mlp_expansion_factor": 8, "attn_layer_indices": None}
REQUIRED = {"num_hidden_layers": 3}


def drawn(draw: Draw) -> Fields:
    """A Mamba-2 of a width of its own, or of a multiple of the hidden size."""
    fields = llama_like(draw)
    fields |= {"hidden_size": 2 * fields["hidden_size"]}
    some(draw, fields, head_dim=SMALL.map(lambda half: 2 * half))
    fields |= mixers(draw, fields["hidden_size"])
    wide = fields["hidden_size"] * fields["mamba_expand"] // fields["mamba_n_heads"]
    width = draw(st.none() | st.integers(1, 2 * wide))
    fields["mamba_d_ssm"] = width and width * fields["mamba_n_heads"]
    flags = ("attention_bias", "mlp_bias", "projectors_bias", "mamba_rms_norm", "mamba_norm_before_gate")
    return some(draw, fields, **dict.fromkeys(flags, ON))


def sized(of: Distinct) -> Sized:
    """All sizes of both."""
    Km, Gm, Hm, Ns, Kc, Pc = of.more[-6:]
    config, sizes = grouped(of, attention_bias=of.on[1], projectors_bias=of.on[2])
    config |= {"mamba_d_ssm": Km * Gm * Hm, "mamba_n_heads": Km * Gm, "mamba_n_groups": Km}
    config |= {"mamba_d_state": Ns, "mamba_d_conv": Kc, "mamba_chunk_size": Pc}
    return config, {**sizes, **letters(of, (Km, Gm, Hm), Ns, Kc, Pc)}
