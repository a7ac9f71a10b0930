"""GLM-5.3-Flash: DeltaNet and latent attention without rotation, an indexer of groups of tokens, several streams."""

from hypothesis import strategies as st

from tests.families import glm_moe_dsa, kimi_linear
from tests.families._deltas import LINEAR
from tests.families._drawing import ON, SMALL, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized

INDEXED = "indexed_attention"
TINY = {
    "model_type": "glm5_next_text", "pad_token_id": 0, "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 67,
    "moe_intermediate_size": 37, "n_routed_experts": 15, "n_shared_experts": 2, "num_experts_per_tok": 7,
    "q_lora_rank": 22, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "v_head_dim": 10, "index_topk": 8, "index_kpool": 4,
    "index_n_heads": 19, "index_head_dim": 16, "hc_mult": 13, "hc_sinkhorn_iters": 3, "latent_attention": "expanded",
    "linear_conv_kernel_dim": 5, "linear_head_dim": 12, "linear_num_heads": 4,
    "indexer_types": ["full", "shared", "full", "full"], "layer_types": [INDEXED, INDEXED, LINEAR, INDEXED],
    "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
}  # fmt: skip
DENSE = {**TINY, "mlp_layer_types": ["dense"] * 4}  # the class weighs experts by sigmoids
LOGITS = {"": DENSE, "absorbed": {**DENSE, "latent_attention": "absorbed", "indexer_types": ["full"] * 4}}
SILENT = {"swiglu_limit": 7.0, "num_nextn_predict_layers": 1, "mhc": True}
REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4, "pad_token_id": 0}


def drawn(draw: Draw) -> Fields:
    """DeltaNet's sizes in fields of the class, or as published configs say them; attention in a layer at least."""
    fields = without(glm_moe_dsa.drawn(draw), "first_k_dense_replace", "indexer_types", "index_topk_pattern")
    fields = without(fields, "index_topk_freq", "index_skip_topk_offset", "tie_word_embeddings")
    layers, pool = fields["num_hidden_layers"], draw(st.integers(1, 5))
    fields |= {"qk_rope_head_dim": 0, "pad_token_id": 0, "index_kpool": pool, "index_topk": pool * draw(SMALL)}
    fields |= {"hc_mult": draw(SMALL), "hc_sinkhorn_iters": draw(st.integers(1, 3))}
    kinds = draw(st.lists(st.sampled_from([LINEAR, INDEXED]), min_size=layers, max_size=layers))
    first = draw(st.integers(0, layers - 1))
    kinds[first] = INDEXED
    chooses = ["full"]
    for number in range(1, layers):
        may = (kinds[number - 1], chooses[-1]) == (INDEXED, "full")
        chooses.append(draw(st.sampled_from(["full", "shared"])) if may else "full")
    fields |= {"layer_types": kinds, "indexer_types": chooses}
    sizes = {"head_dim": draw(SMALL), "num_heads": draw(SMALL), "short_conv_kernel_size": draw(st.integers(1, 9))}
    if draw(ON):
        fields |= {"linear_attn_config": sizes}
    else:
        fields |= {"linear_head_dim": sizes["head_dim"], "linear_num_heads": sizes["num_heads"]}
        some(draw, fields, linear_conv_kernel_dim=st.integers(1, 9))
    return some(draw, fields, index_kpool_always_select_tail=ON)


def sized(of: Distinct) -> Sized:
    """Attention with an indexer in all layers, or DeltaNet in all, by turns."""
    config, sizes = kimi_linear.sized(of)
    config = {
        **without(config, "num_local_experts", "first_k_dense_replace", "qk_rope_head_dim", "q_lora_rank"),
        "pad_token_id": 0,
    }
    config |= {"n_routed_experts": sizes["E"], "hc_mult": of.J, "mlp_layer_types": ["sparse"] * of.L}
    streams = {"Xm": of.J, "Xn": of.J, "Xw": (2 + of.J) * of.J, "Xf": 3}
    if of.seed % 2:
        return config, {**sizes, **streams}
    rate = 2 + of.seed % 3
    config |= {"layer_types": [INDEXED] * of.L, "index_n_heads": of.P + 70, "index_head_dim": of.K + 150}
    config |= {"index_kpool": rate, "index_topk": 2 * rate, "q_lora_rank": of.more[1]}
    own = {
        "Nx": of.P + 70,
        "Hx": of.K + 150,
        "Mc": rate,
        "Rs": sizes["R"],
        "Hq": sizes["Hp"],
        "Rq": of.more[1],
        "Hy": 2 * (of.K + 150) + 1,
    }
    own |= {"Sc": of.S // rate}
    return config, {**without(sizes, "Hr", "Rs", "Hq"), **own, **streams}
