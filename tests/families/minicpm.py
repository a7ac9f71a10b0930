"""Test configs of the minicpm lineage: a small one of each family, and variants."""

from tests.families._configs import in_forms, latent_forms, without
from tests.families.deepseek import DeepseekV3


class MiniCPM:
    TINY = {
        "model_type": "minicpm", "vocab_size": 439, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 39, "scale_emb": 3.0,
        "scale_depth": 1.7, "dim_model_base": 13.0, "attention_bias": True, "tie_word_embeddings": False,
    }  # fmt: skip
    SILENT = {"mup_denominator": 32, "num_experts": 0}
    RUN_BY = "Granite"


class MiniCPM3:
    EXPERTS = (
        "moe_intermediate_size", "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "first_k_dense_replace",
        "n_group", "topk_group",
    )  # fmt: skip
    TINY = {
        **without(DeepseekV3.TINY, *EXPERTS), "model_type": "minicpm3", "vocab_size": 421, "pad_token_id": 0,
        "scale_emb": 3.0, "scale_depth": 1.7, "dim_model_base": 13, "tie_word_embeddings": False,
    }  # fmt: skip
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    LOGITS = latent_forms(without(TINY, "first_k_dense_replace"), {})
