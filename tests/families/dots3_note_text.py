"""dots3-note's language model: gated latent attention, an indexer in some layers, a window in the others."""

from hypothesis import strategies as st

from tests.families import deepseek_v32
from tests.families._drawing import EVEN, ON, SMALL, WINDOW, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized

INDEXED, SLIDING = "indexed_attention", "sliding_attention"
TINY = {
    **without(deepseek_v32.TINY, "first_k_dense_replace"), "model_type": "dots3_note_text", "vocab_size": 547,
    "pad_token_id": 0,
    "shared_experts_intermediate_size": 43, "layer_types": [INDEXED, SLIDING, SLIDING], "sliding_window": 8,
    "mlp_layer_types": ["dense", "sparse", "dense"], "swa_num_attention_heads": 7, "swa_num_key_value_heads": 7,
    "swa_q_lora_rank": 26, "swa_kv_lora_rank": 17, "swa_head_dim": 39, "swa_qk_nope_head_dim": 29,
    "swa_v_head_dim": 24,
}  # fmt: skip
VARIANTS = {
    "windowed, absorbed": {**TINY, "latent_attention": "absorbed"},
    "unpacked": {**TINY, "latent_attention": "unpacked"},
}
DENSE = {**TINY, "mlp_layer_types": ["dense"] * 3}  # the class weighs experts by sigmoids
LOGITS = {"": DENSE, "absorbed": {**DENSE, "latent_attention": "absorbed", "use_dsa": False}}
SILENT = {"norm_topk_prob": False}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = deepseek_v32.drawn(draw)
    groups, heads = fields["n_group"], draw(SMALL)
    fields["pad_token_id"] = 0
    fields |= {"topk_group": min(fields["topk_group"], groups), "shared_experts_intermediate_size": draw(SMALL)}
    turned, plain = draw(EVEN), draw(SMALL)
    sizes = {"num_attention_heads": heads, "num_key_value_heads": heads, "q_lora_rank": draw(SMALL)}
    sizes |= {"kv_lora_rank": draw(SMALL), "qk_nope_head_dim": plain, "v_head_dim": draw(SMALL)}
    sizes |= {"head_dim": turned + plain, "qk_rope_head_dim": turned}
    layers = fields["num_hidden_layers"]
    kinds = draw(st.lists(st.sampled_from([INDEXED, SLIDING]), min_size=layers, max_size=layers))
    fields["sliding_window"] = draw(WINDOW)
    if draw(ON):
        fields |= {f"swa_{name}": size for name, size in sizes.items()}
        some(draw, fields, use_dsa=ON, layer_types=st.none() | st.just(kinds), use_sliding_window=ON)
    else:
        fields |= {"layer_types": [draw(st.sampled_from([kind, "full_attention"])) for kind in kinds]}
        slides = [str(number) for number, kind in enumerate(fields["layer_types"]) if kind == SLIDING]
        fields["per_layer_config"] = dict.fromkeys(slides, sizes)
    return some(draw, fields, moe_layer_freq=st.integers(1, 3))


def sized(of: Distinct) -> Sized:
    """An indexer in all layers, or a window in all, by turns."""
    config, sizes = deepseek_v32.sized(of)
    config |= {"shared_experts_intermediate_size": of.P + 400, "layer_types": [INDEXED] * of.L}
    sizes |= {"Fs": config["n_shared_experts"] * (of.P + 400)}
    if of.seed % 2:
        return config, sizes
    own = {"num_attention_heads": "N", "num_key_value_heads": "N", "q_lora_rank": "Rq", "kv_lora_rank": "R"}
    own |= {"head_dim": "Hq", "qk_nope_head_dim": "Hp", "v_head_dim": "Hv"}
    config |= {f"swa_{name}": sizes[letter] for name, letter in own.items()}
    wide = of.G + 3
    config |= {"layer_types": [SLIDING] * of.L, "sliding_window": wide}
    bound = {"W": wide, "Sw": of.T + min(of.S - of.T, wide - 1), "Sk": min(of.S, wide)}
    config = without(config, "index_n_heads", "index_head_dim", "index_topk")
    return config, {**without(sizes, "Nx", "Hx", "Sx"), **bound}
