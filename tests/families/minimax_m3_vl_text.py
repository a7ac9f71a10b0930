"""MiniMax-M3's language model: an indexer that chooses blocks of keys, experts beside a shared network."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, experts, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped, routed

FULL, SPARSE = "full_attention", "minimax_m3_sparse"
TINY = {
    "model_type": "minimax_m3_vl_text", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 20, "intermediate_size": 37,
    "dense_intermediate_size": 71, "shared_intermediate_size": 29, "max_position_embeddings": 103,
    "num_local_experts": 10, "num_experts_per_tok": 5, "layer_types": [FULL, SPARSE, SPARSE],
    "mlp_layer_types": ["dense", "sparse", "sparse"], "index_n_heads": 6, "index_head_dim": 14,
    "index_block_size": 4, "index_topk_blocks": 3, "rope_parameters": {"partial_rotary_factor": 0.4},
}  # fmt: skip
DENSE = {**TINY, "mlp_layer_types": ["dense"] * 3}
LOGITS = {"": DENSE, "without a block of its own": {**DENSE, "index_local_blocks": 0, "index_n_heads": 4}}
SILENT = {"routed_scaling_factor": 2.0, "swiglu_limit": 7.0, "use_qk_norm": True, "num_mtp_modules": 3}
REQUIRED = {"num_hidden_layers": 2, "layer_types": [FULL, SPARSE], "mlp_layer_types": ["dense", "sparse"]}
PARTLY = {"partial_rotary_factor": 0.5}


def drawn(draw: Draw) -> Fields:
    """Sizes as fields or in sparse_attention_config, layers as names or as numbers."""
    fields = llama_like(draw, null_kv=False)
    layers, heads = fields["num_hidden_layers"], fields["num_attention_heads"]
    fields |= {"head_dim": 4 * draw(SMALL), "rope_parameters": PARTLY}
    some(draw, fields, dense_intermediate_size=WIDTH, shared_intermediate_size=WIDTH)
    fields |= experts(draw, "num_local_experts")
    own = draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0]))
    sizes = {"index_n_heads": own, "index_head_dim": fields["head_dim"] // 2 + draw(st.integers(2, 5))}
    sizes |= {"index_block_size": draw(SMALL), "index_topk_blocks": draw(SMALL)}
    kinds = draw(st.lists(st.sampled_from([0, 1]), min_size=layers, max_size=layers))
    if draw(st.booleans()):
        names = ("sparse_num_index_heads", "sparse_index_dim", "sparse_block_size", "sparse_topk_blocks")
        listed = {"use_sparse_attention": True, "sparse_attention_freq": kinds}
        fields["sparse_attention_config"] = {**dict(zip(names, sizes.values(), strict=True)), **listed}
    else:
        fields |= {**sizes, "layer_types": [SPARSE if one else FULL for one in kinds]}
    networks = st.lists(st.sampled_from([0, 1]), min_size=layers, max_size=layers)
    some(draw, fields, moe_layer_freq=networks)
    named = networks.map(lambda each: ["sparse" if one else "dense" for one in each])
    return fields if "moe_layer_freq" in fields else some(draw, fields, mlp_layer_types=st.none() | named)


def sized(of: Distinct) -> Sized:
    """An indexer and experts in every layer."""
    Nx, Hx, Fs, *more = of.more
    config, sizes = grouped(of, layer_types=[SPARSE] * of.L, rope_parameters=PARTLY)
    config |= {"num_attention_heads": of.K * of.G * Nx, "index_n_heads": Nx, "index_head_dim": of.H + Hx}
    config |= {"num_key_value_heads": of.K * Nx, "head_dim": 2 * of.H, "shared_intermediate_size": Fs}
    config, sizes = routed((config, sizes), more, "num_local_experts", "intermediate_size")
    own = {"K": of.K * Nx, "N": of.K * of.G * Nx, "H": 2 * of.H, "Hr": of.H, "Nx": Nx, "Hx": of.H + Hx, "Fs": Fs}
    return config, {**sizes, **own}
