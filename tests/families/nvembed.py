"""NV-Embed: no class stands behind it; a pooler whose positions read learned rows."""

from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "nvembed", "vocab_size": 127, "hidden_size": 50, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 64,
    "num_latents_value": 13, "num_cross_heads": 3, "cross_dim_head": 11, "latent_dim": 50, "hidden_dim": 50,
}  # fmt: skip
SILENT = {"add_eos": True, "padding_side": "right", "output_normalize": True}


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of)
    rows, heads, size = of.more[:3]
    own = {"num_latents_value": rows, "num_cross_heads": heads, "cross_dim_head": size}
    wide = dict.fromkeys(("latent_dim", "hidden_dim"), of.D)
    return {**config, **own, **wide}, {**sizes, "T": of.S, "Zp": rows, "Np": heads, "Hz": size, "Fy": 4 * of.D}
