"""OpenELM: no class stands behind it; heads and widths of each layer's own."""

from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "openelm", "vocab_size": 467, "model_dim": 44, "num_transformer_layers": 3, "head_dim": 14,
    "max_context_length": 59, "num_query_heads": [6, 12, 12], "num_kv_heads": [2, 3, 3],
    "ffn_multipliers": [0.5, 1.3, 2.0], "ffn_dim_divisor": 16, "ffn_with_glu": True, "normalize_qk_projections": True,
    "share_input_output_layers": True,
}  # fmt: skip
VARIANTS = {
    "untied": {
        **TINY, "ffn_with_glu": False, "normalize_qk_projections": False, "share_input_output_layers": False,
    }
}  # fmt: skip
SILENT = {"num_gqa_groups": 4, "qkv_multipliers": [0.5, 1.0], "rope_max_length": 4096}


def sized(of: Distinct) -> Sized:
    config = {
        "vocab_size": of.V, "model_dim": of.D, "num_transformer_layers": of.L, "head_dim": of.H,
        "max_context_length": of.P, "num_query_heads": [of.K * of.G] * of.L, "num_kv_heads": [of.K] * of.L,
        "ffn_multipliers": [1.5] * of.L, "ffn_dim_divisor": 1, "ffn_with_glu": of.on[0],
        "normalize_qk_projections": of.on[1], "share_input_output_layers": of.on[2],
    }  # fmt: skip
    return config, {**of.letters("KGHDVLBTS"), "N": of.K * of.G, "F": int(1.5 * of.D + 0.5)}
