"""DBRX: experts in every layer, sizes in configs inside the config."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, SMALL, VOCAB, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden, routed

TINY = {
    "model_type": "dbrx", "vocab_size": 499, "d_model": 60, "n_layers": 2, "n_heads": 6, "max_seq_len": 71,
    "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.7, "rope_theta": 10_000.0},
    "ffn_config": {"ffn_hidden_size": 37, "moe_num_experts": 7, "moe_top_k": 4},
}  # fmt: skip
LOGITS = {"of every expert": {**TINY, "ffn_config": {**TINY["ffn_config"], "moe_top_k": 7}}}
ASKED = {"rope_theta": 500_000.0, "clip_qkv": 8}
"""Fields for which the class has no default, and without which it does not run."""
REQUIRED = {"n_layers": 2, "attn_config": ASKED}
SILENT = {"attn_config": {**TINY["attn_config"], "attn_pdrop": 0.3}}


def drawn(draw: Draw) -> Fields:
    heads = draw(SMALL) * (kv := draw(SMALL))
    fields = {"d_model": heads * draw(EVEN), "n_layers": draw(st.integers(1, 3)), "n_heads": heads}
    experts = draw(SMALL)
    network = {"moe_num_experts": experts, "moe_top_k": draw(st.integers(1, experts))}
    own = {"attn_config": {"kv_n_heads": kv, **ASKED}, "ffn_config": some(draw, network, ffn_hidden_size=WIDTH)}
    return fields | {"vocab_size": draw(VOCAB), **own}


def sized(of: Distinct) -> Sized:
    config, sizes = routed(parts_of_hidden(of), of.more, "moe_num_experts", "ffn_hidden_size")
    network = {name: config[name] for name in ("moe_num_experts", "ffn_hidden_size")}
    own = {
        "attn_config": {"kv_n_heads": of.K, **ASKED},
        "ffn_config": {**network, "moe_top_k": config["num_experts_per_tok"]},
    }
    fields = {"vocab_size": of.V, "d_model": sizes["D"], "n_layers": of.L, "n_heads": of.K * of.G, **own}
    return fields, sizes
