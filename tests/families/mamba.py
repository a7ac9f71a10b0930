"""Test configs of the mamba lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, LAYERS, Fields


class Mamba:
    TINY = {
        "model_type": "mamba", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2, "state_size": 5,
        "intermediate_size": 71, "conv_kernel": 6, "time_step_rank": 8, "use_bias": True,
    }  # fmt: skip
    LOGITS = {
        "": TINY,
        "plain": {**TINY, "use_bias": False, "use_conv_bias": False, "tie_word_embeddings": False},
        "of one token's convolution": {**TINY, "conv_kernel": 1, "layer_norm_epsilon": 1e-3},
    }
    SILENT = {"fused_add_norm": False, "ssm_cfg": {}, "pad_vocab_size_multiple": 181, "d_model": 42, "d_inner": 71}
    CONTEXT = 2048
    INSTEAD = {
        "attn_scores_values": "mamba.conv",
        "attn.scores": "mamba.read_out",
        "share.attn": "share.mamba.dt_proj",
        ".mlp": ".mamba",
    }
    REQUIRED = LAYERS


class Mamba2(Mamba):
    TINY = {
        "model_type": "mamba2", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2, "num_heads": 6,
        "head_dim": 14, "n_groups": 2, "state_size": 5, "conv_kernel": 8, "chunk_size": 12, "use_bias": True,
    }  # fmt: skip
    REQUIRED = {"num_hidden_layers": 2}
    LOGITS = {
        "": TINY,
        "plain": {**TINY, "use_bias": False, "use_conv_bias": False, "tie_word_embeddings": True},
        "of one token's convolution": {**TINY, "conv_kernel": 1, "layer_norm_epsilon": 1e-3, "chunk_size": 64},
    }
    SILENT = {"time_step_rank": 7, "norm_before_gate": True, "rms_norm": True}
    INSTEAD = {**Mamba.INSTEAD, "attn.scores": "mamba.chunk_scores", "share.attn": "share.mamba.in_proj"}


class FalconMamba(Mamba):
    TINY = {**Mamba.TINY, "model_type": "falcon_mamba", "expand": 3}
    LOGITS = {"": TINY, "plain": {**TINY, "use_bias": False, "use_conv_bias": False, "mixer_rms_eps": 1e-3}}
    SILENT = {**Mamba.SILENT, "use_falcon_mambapy": False}
    REQUIRED = {"num_hidden_layers": 2}


class Bamba:
    TINY = {
        "model_type": "bamba", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 71, "max_position_embeddings": 103,
        "attn_layer_indices": [1], "mamba_n_heads": 6, "mamba_n_groups": 2, "mamba_d_state": 5, "mamba_d_conv": 8,
        "mamba_chunk_size": 12, "mamba_proj_bias": True, "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip
    REQUIRED = {"num_hidden_layers": 2}
    SILENT = {"num_logits_to_keep": 1, "z_loss_coefficient": 0.1, "mamba_d_head": 16}
    REQUIRED = {"num_hidden_layers": 3, "attn_layer_indices": [1]}


class Jamba:
    TINY = {
        **GROUPED, "model_type": "jamba", "vocab_size": 211, "num_hidden_layers": 4, "head_dim": 20,
        "max_position_embeddings": 103, "num_experts": 7, "num_experts_per_tok": 4, "attn_layer_period": 3,
        "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 5,
        "mamba_d_conv": 8, "mamba_expand": 2, "mamba_dt_rank": 11, "mamba_proj_bias": True,
    }  # fmt: skip
    LOGITS = {
        "": {**TINY, "num_experts": 1, "num_experts_per_tok": 1}
    }  # dense layers: the router's weights are not summed
    SILENT = {"use_mamba_kernels": False, "mamba_inner_layernorms": True, "num_logits_to_keep": 1}
    REQUIRED = {"num_hidden_layers": 5}


class Zamba2:
    TINY = {
        "model_type": "zamba2", "vocab_size": 211, "hidden_size": 80, "num_hidden_layers": 5, "num_attention_heads": 8,
        "intermediate_size": 71, "max_position_embeddings": 103, "num_mem_blocks": 1, "adapter_rank": 17,
        "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"], "use_shared_attention_adapter": True,
        "use_mem_rope": True, "add_bias_linear": True, "n_mamba_heads": 15, "mamba_ngroups": 3, "mamba_d_state": 7,
        "mamba_d_conv": 6, "mamba_expand": 3, "chunk_size": 12, "time_step_min": 1e-9,
    }  # fmt: skip
    GROUPED = {**TINY, "num_key_value_heads": 2, "use_shared_attention_adapter": False, "use_mem_rope": False}
    VARIANTS = {"two blocks in turn": {**GROUPED, "num_mem_blocks": 2, "add_bias_linear": False}}
    SMALLER = {"hidden_size": 48, "num_attention_heads": 6, "n_mamba_heads": 6, "mamba_ngroups": 2, "mamba_expand": 2}
    SMALLER |= {"adapter_rank": 13, "mamba_d_state": 5, "mamba_d_conv": 8}
    """Sizes at which the class's own casts to float32 stay small."""
    LOGITS = {
        "": {**TINY, **SMALLER, "num_mem_blocks": 2},
        "with few keys": {**GROUPED, **SMALLER},
    }
    SILENT = {
        "use_conv_bias": False, "use_mamba_kernels": False, "use_mem_eff_path": True, "num_logits_to_keep": 1,
        "kv_channels": 8, "num_query_groups": 6, "attention_hidden_size": 160,
    }  # fmt: skip
    REQUIRED: Fields = {}


class FalconH1:
    TINY = {
        **GROUPED, "model_type": "falcon_h1", "vocab_size": 211, "head_dim": 20, "max_position_embeddings": 103,
        "mamba_d_ssm": 280, "mamba_n_heads": 28, "mamba_n_groups": 4, "mamba_d_state": 5, "mamba_d_conv": 8,
        "mamba_chunk_size": 12,
    }  # fmt: skip
    MULTIPLIED = {
        "lm_head_multiplier": 0.5, "embedding_multiplier": 2.5, "mlp_multipliers": [0.8, 1.5], "key_multiplier": 0.6,
        "attention_out_multiplier": 0.9, "attention_in_multiplier": 1.4,
        "ssm_multipliers": [0.75, 1.5, 1.25, 0.625, 0.375], "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.35,
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
