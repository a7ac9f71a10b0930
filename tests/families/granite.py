"""Test configs of the granite lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED


class Granite:
    TINY = {
        **GROUPED, "model_type": "granite", "vocab_size": 193, "max_position_embeddings": 39,
        "embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.22, "attention_multiplier": 0.13,
        "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip


class GraniteMoe:
    TINY = {
        **GROUPED, "model_type": "granitemoe", "vocab_size": 373, "intermediate_size": 37,
        "max_position_embeddings": 109, "embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.22,
        "attention_multiplier": 0.13, "attention_bias": True, "num_local_experts": 7, "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed


class GraniteMoeShared(GraniteMoe):
    TINY = {
        **GraniteMoe.TINY, "model_type": "granitemoeshared", "vocab_size": 409, "shared_intermediate_size": 53,
    }  # fmt: skip
    VARIANTS = {"without a shared network": {**TINY, "shared_intermediate_size": 0}}
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed


class GraniteMoeHybrid:
    TINY = {
        **GROUPED, "model_type": "granitemoehybrid", "vocab_size": 211, "num_hidden_layers": 3, "head_dim": 20,
        "intermediate_size": 37, "max_position_embeddings": 103, "layer_types": ["mamba", "attention", "mamba"],
        "mamba_n_heads": 6, "mamba_n_groups": 2, "mamba_d_state": 5, "mamba_d_conv": 8, "mamba_chunk_size": 12,
        "mamba_proj_bias": True, "attention_bias": True, "shared_intermediate_size": 71, "num_local_experts": 7,
        "num_experts_per_tok": 4, "position_embedding_type": "nope", "embedding_multiplier": 3.0, "logits_scaling": 4.0,
        "residual_multiplier": 0.22, "attention_multiplier": 0.13,
    }  # fmt: skip
    LOGITS = {
        "of every expert": {**TINY, "num_experts_per_tok": 7},  # the reference's routing is fixed
        "without experts": {**TINY, "num_local_experts": 0, "position_embedding_type": "rope"},
    }
    SILENT = {"normalization_function": "rmsnorm", "init_method": "mup", "mamba_d_head": 16}
    REQUIRED = {"num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}


class GraniteSWA:
    OWN = {
        "num_hidden_layers": 3, "sliding_window": 5, "layer_rope_theta": [700.0, 0, 100.0],
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    }  # fmt: skip
    TINY = {**Granite.TINY, "model_type": "granite_swa", "vocab_size": 439, **OWN}
    LOGITS = {"": TINY, "of one base": {**TINY, "layer_rope_theta": None, "layer_types": None}}
    REQUIRED = {"num_hidden_layers": 5}  # every size has a default


class GraniteMoeSWA(GraniteSWA):
    TINY = {**GraniteMoeShared.TINY, "model_type": "granitemoe_swa", "vocab_size": 443, **GraniteSWA.OWN}
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed


class HyperCLOVAX:
    TINY = {
        **GROUPED, "model_type": "hyperclovax", "vocab_size": 197, "max_position_embeddings": 41,
        "embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.22, "attention_multiplier": 0.13,
        "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip
    VARIANTS = {"norms in front only": {**TINY, "use_post_norm": False}}
    LOGITS = {"": TINY, "in front only": {**VARIANTS["norms in front only"], "attention_multiplier": None}}
