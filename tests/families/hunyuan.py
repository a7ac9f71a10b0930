"""Test configs of the hunyuan lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, without
from tests.families.deepseek import DeepseekV32


class HunYuanDenseV1:
    TINY = {
        **GROUPED, "model_type": "hunyuan_v1_dense", "vocab_size": 139, "num_hidden_layers": 3,
        "max_position_embeddings": 83, "attention_bias": True,
    }  # fmt: skip
    REQUIRED = {"head_dim": 128, "num_hidden_layers": 2}


class HunYuanMoEV1(HunYuanDenseV1):
    TINY = {
        **HunYuanDenseV1.TINY, "model_type": "hunyuan_v1_moe", "num_experts": 7, "moe_topk": [4, 5, 4],
        "vocab_size": 137,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "moe_topk": 7}}  # the reference's routing is fixed


class HYV3:
    TINY = {
        **GROUPED, "model_type": "hy_v3", "vocab_size": 419, "num_hidden_layers": 3, "max_position_embeddings": 121,
        "attention_bias": True, "moe_intermediate_size": 37, "num_experts": 7, "num_shared_experts": 2,
        "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "mlp_layer_types": ["dense"] * 3}}  # the class weighs experts by sigmoids


class HYV4(DeepseekV32):
    TINY = {
        **without(DeepseekV32.TINY, "first_k_dense_replace"), "model_type": "hy_v4", "vocab_size": 163, "hc_mult": 13,
        "indexer_types": ["full", "shared", "full"], "mlp_layer_types": ["dense", "sparse", "sparse"],
        "pad_token_id": 0,
    }  # fmt: skip
    DENSE = {**TINY, "mlp_layer_types": ["dense"] * 3}  # the class weighs experts by sigmoids
    LOGITS = {
        "": DENSE,
        "of indexers alone": {**DENSE, "indexer_types": ["full"] * 3, "hc_magnitude": 1.3, "hc_mult": 2},
    }
    SILENT = {"learnable_sink_init": 0.5, "swiglu_limit": 7.0, "hc_magnitude": 1.5}
