from tests.families._configs import SIZES, family

BEIT_SHAPES = {
    "shared": {
        "use_relative_position_bias": False, "use_shared_relative_position_bias": True, "use_mask_token": True,
        "use_mean_pooling": False,
    },
    "absolute": {
        "use_relative_position_bias": False, "use_absolute_position_embeddings": True, "layer_scale_init_value": 0.0,
    },
}  # fmt: skip

# fmt: off
VIT = family("vit", SIZES, hidden_size=42, num_channels=5, image_size=22, patch_size=5, CONTEXT=197,
    COMPARED={
        "classes": {"architectures": ["ViTForImageClassification"], "num_labels": 11},
        "without biases": {"qkv_bias": False},
    }, SILENT={"initializer_range": 0.3})
family("vit_msn", VIT, COMPARED={"classes": {"architectures": ["ViTMSNForImageClassification"], "num_labels": 11}})
family("deit", VIT, CONTEXT=198,
    COMPARED={
        "classes": {"architectures": ["DeiTForImageClassification"], "num_labels": 11},
        "both tokens": {"architectures": ["DeiTForImageClassificationWithTeacher"], "num_labels": 11},
        "without biases": {"qkv_bias": False},
    })
family("ijepa", VIT, CONTEXT=196,
    COMPARED={"classes": {"architectures": ["IJepaForImageClassification"], "num_labels": 11}})
BEIT = family("beit", VIT, use_relative_position_bias=True, COMPARED=BEIT_SHAPES,
    SILENT={"vocab_size": 30})
family("data2vec-vision", BEIT, COMPARED=BEIT_SHAPES)
DINOV2 = family("dinov2", hidden_size=42, num_hidden_layers=2, num_attention_heads=6, mlp_ratio=3, num_channels=5,
    image_size=22, patch_size=5, CONTEXT=257,
    COMPARED={
        "gated": {"mlp_ratio": 4, "use_swiglu_ffn": True},
        "without biases": {"qkv_bias": False, "use_mask_token": False},
    })
family("dinov2_with_registers", DINOV2, num_register_tokens=3, CONTEXT=201,
    COMPARED={"gated": {"mlp_ratio": 4, "use_swiglu_ffn": True}})
family("dinov3_vit", SIZES, num_channels=5, image_size=22, patch_size=5, num_register_tokens=3, CONTEXT=197,
    COMPARED={
        "gated": {"use_gated_mlp": True, "hidden_act": "silu", "query_bias": False, "value_bias": False},
        "with every bias": {"num_register_tokens": 0, "key_bias": True, "rope_theta": 50.0},
        "without others": {"proj_bias": False, "mlp_bias": False},
    })
family("audio-spectrogram-transformer", SIZES, hidden_size=42, patch_size=5, frequency_stride=3, time_stride=4,
    max_length=22, num_mel_bins=13, CONTEXT=1214,
    COMPARED={
        "classes": {"architectures": ["ASTForAudioClassification"], "num_labels": 11},
        "without biases": {"qkv_bias": False},
    })
