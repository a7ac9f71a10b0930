from tests.families._configs import GROUPED, LAYERS, SIZES, family, of_dense_layers

# fmt: off
MAMBA = family("mamba", LAYERS, vocab_size=181, hidden_size=42, state_size=5, intermediate_size=71, conv_kernel=6,
    time_step_rank=8, use_bias=True, CONTEXT=2048,
    LOGITS={
        "plain": {"use_bias": False, "use_conv_bias": False, "tie_word_embeddings": False},
        "of one token's convolution": {"conv_kernel": 1, "layer_norm_epsilon": 0.001},
    }, REQUIRED=LAYERS,
    SILENT={"ssm_cfg": {}, "pad_vocab_size_multiple": 181, "d_model": 42, "d_inner": 71},
    INSTEAD={
        "attn_scores_values": "mamba.conv", "attn.scores": "mamba.read_out", "share.attn": "share.mamba.dt_proj",
        ".mlp": ".mamba",
    })
family("mamba2", LAYERS, vocab_size=181, hidden_size=42, num_heads=6, head_dim=14, n_groups=2, state_size=5,
    conv_kernel=8, chunk_size=12, use_bias=True, CONTEXT=2048,
    LOGITS={
        "plain": {"use_bias": False, "use_conv_bias": False, "tie_word_embeddings": True},
        "of one token's convolution": {"conv_kernel": 1, "chunk_size": 64, "layer_norm_epsilon": 0.001},
    }, REQUIRED={"num_hidden_layers": 2}, SILENT={"rms_norm": True},
    INSTEAD={
        "attn_scores_values": "mamba.conv", "attn.scores": "mamba.chunk_scores", "share.attn": "share.mamba.in_proj",
        ".mlp": ".mamba",
    })
family("falcon_mamba", MAMBA, expand=3,
    LOGITS={"plain": {"use_bias": False, "use_conv_bias": False, "mixer_rms_eps": 0.001}},
    REQUIRED={"num_hidden_layers": 2},
    SILENT={"ssm_cfg": {}, "pad_vocab_size_multiple": 181, "d_model": 42, "d_inner": 71})
family("bamba", GROUPED, vocab_size=211, num_hidden_layers=3, head_dim=20, max_position_embeddings=103,
    attn_layer_indices=[1], mamba_n_heads=6, mamba_n_groups=2, mamba_d_state=5, mamba_d_conv=8, mamba_chunk_size=12,
    mamba_proj_bias=True, attention_bias=True, mlp_bias=True, COMPARED={"odd heads": {"head_dim": 9}},
    REQUIRED={"num_hidden_layers": 3, "attn_layer_indices": [1]},
    SILENT={"mamba_d_head": 16})
# Dense layers: the class does not sum the router's weights to 1.
family("jamba", GROUPED, num_hidden_layers=4, head_dim=20, vocab_size=211, max_position_embeddings=103, num_experts=7,
    num_experts_per_tok=4, attn_layer_period=3, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
    mamba_d_state=5, mamba_d_conv=8, mamba_expand=2, mamba_dt_rank=11, mamba_proj_bias=True,
    LOGITS=of_dense_layers(num_experts=1, num_experts_per_tok=1), REQUIRED={"num_hidden_layers": 5})
# At the sizes of LOGITS, the class's own casts to float32 stay small.
family("zamba2", SIZES, vocab_size=211, hidden_size=80, num_hidden_layers=5, num_attention_heads=8,
    max_position_embeddings=103, num_mem_blocks=1, adapter_rank=17,
    layers_block_type=["mamba", "hybrid", "hybrid", "mamba", "hybrid"], use_shared_attention_adapter=True,
    use_mem_rope=True, add_bias_linear=True, n_mamba_heads=15, mamba_ngroups=3, mamba_d_state=7, mamba_d_conv=6,
    mamba_expand=3, chunk_size=12, time_step_min=1e-09,
    VARIANTS={
        "two blocks in turn": {
            "num_mem_blocks": 2, "use_shared_attention_adapter": False, "use_mem_rope": False, "add_bias_linear": False,
            "num_key_value_heads": 2,
        },
    },
    LOGITS={
        "": {
            "hidden_size": 48, "num_attention_heads": 6, "num_mem_blocks": 2, "adapter_rank": 13, "n_mamba_heads": 6,
            "mamba_ngroups": 2, "mamba_d_state": 5, "mamba_d_conv": 8, "mamba_expand": 2,
        },
        "with few keys": {
            "num_mem_blocks": 1, "use_shared_attention_adapter": False, "use_mem_rope": False,
            "num_key_value_heads": 2,
        },
    }, REQUIRED={},
    SILENT={"attention_hidden_size": 160})
family("falcon_h1", GROUPED, head_dim=20, vocab_size=211, max_position_embeddings=103, mamba_d_ssm=280,
    mamba_n_heads=28, mamba_n_groups=4, mamba_d_state=5, mamba_d_conv=8, mamba_chunk_size=12,
    VARIANTS={
        "normed and biased": {
            "attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True, "projectors_bias": True,
            "mamba_rms_norm": True, "mamba_norm_before_gate": False,
        },
    },
    LOGITS={
        "": {
            "lm_head_multiplier": 0.5, "embedding_multiplier": 2.5, "mlp_multipliers": [0.8, 1.5],
            "key_multiplier": 0.6, "attention_out_multiplier": 0.9, "attention_in_multiplier": 1.4,
            "ssm_multipliers": [0.75, 1.5, 1.25, 0.625, 0.375], "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.35,
        },
        "normed in front of the gate": {
            "attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True, "projectors_bias": True,
            "mamba_rms_norm": True,
        },
        "normed after the gate": {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
    }, REQUIRED={"num_hidden_layers": 3})
