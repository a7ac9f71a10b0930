"""Test configs of the vit lineage: a small one of each family, and variants."""

from tests.families._configs import SIZES


class ViT:
    TINY = {**SIZES, "model_type": "vit", "hidden_size": 42, "num_channels": 5, "image_size": 22, "patch_size": 5}
    VARIANTS = {
        "classes": {**TINY, "architectures": ["ViTForImageClassification"], "num_labels": 11},
        "without biases": {**TINY, "qkv_bias": False},
    }
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 197
    SILENT = {"encoder_stride": 7, "initializer_range": 0.3}


class ViTMSN(ViT):
    TINY = {**ViT.TINY, "model_type": "vit_msn"}
    VARIANTS = {"classes": {**TINY, "architectures": ["ViTMSNForImageClassification"], "num_labels": 11}}
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 197


class DeiT(ViT):
    TINY = {**ViT.TINY, "model_type": "deit"}
    VARIANTS = {
        "classes": {**TINY, "architectures": ["DeiTForImageClassification"], "num_labels": 11},
        "both tokens": {**TINY, "architectures": ["DeiTForImageClassificationWithTeacher"], "num_labels": 11},
        "without biases": {**TINY, "qkv_bias": False},
    }
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 198


class IJepa(ViT):
    TINY = {**ViT.TINY, "model_type": "ijepa"}
    VARIANTS = {"classes": {**TINY, "architectures": ["IJepaForImageClassification"], "num_labels": 11}}
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 196


class Beit:
    TINY = {
        **SIZES, "model_type": "beit", "hidden_size": 42, "num_channels": 5, "image_size": 22, "patch_size": 5,
        "use_relative_position_bias": True,
    }  # fmt: skip
    SHARED = {"use_relative_position_bias": False, "use_shared_relative_position_bias": True, "use_mask_token": True}
    VARIANTS = {
        "shared": {**TINY, **SHARED, "use_mean_pooling": False},
        "absolute": {
            **TINY,
            "use_relative_position_bias": False,
            "use_absolute_position_embeddings": True,
            "layer_scale_init_value": 0.0,
        },
    }
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 197
    SILENT = {"vocab_size": 30, "drop_path_rate": 0.2, "pool_scales": [1, 2, 3, 6], "use_auxiliary_head": True}


class Data2VecVision(Beit):
    TINY = {**Beit.TINY, "model_type": "data2vec-vision"}
    VARIANTS = {name: {**config, "model_type": "data2vec-vision"} for name, config in Beit.VARIANTS.items()}
    LOGITS = {"": TINY, **VARIANTS}
    SILENT = {"drop_path_rate": 0.2, "pool_scales": [1, 2, 3, 6], "use_auxiliary_head": True}


class Dinov2:
    TINY = {
        "model_type": "dinov2", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6, "mlp_ratio": 3,
        "num_channels": 5, "image_size": 22, "patch_size": 5,
    }  # fmt: skip
    VARIANTS = {
        "gated": {**TINY, "use_swiglu_ffn": True, "mlp_ratio": 4},
        "without biases": {**TINY, "qkv_bias": False, "use_mask_token": False},
    }
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 257
    SILENT = {"layerscale_value": 0.3, "drop_path_rate": 0.1, "apply_layernorm": False, "reshape_hidden_states": False}


class Dinov2WithRegisters(Dinov2):
    TINY = {**Dinov2.TINY, "model_type": "dinov2_with_registers", "num_register_tokens": 3}
    VARIANTS = {"gated": {**TINY, "use_swiglu_ffn": True, "mlp_ratio": 4}}
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 201


class DINOv3ViT:
    TINY = {
        "model_type": "dinov3_vit", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5, "num_register_tokens": 3,
    }  # fmt: skip
    VARIANTS = {
        "gated": {**TINY, "use_gated_mlp": True, "hidden_act": "silu", "query_bias": False, "value_bias": False},
        "with every bias": {**TINY, "key_bias": True, "num_register_tokens": 0, "rope_theta": 50.0},
        "without others": {**TINY, "proj_bias": False, "mlp_bias": False},
    }
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 197
    SILENT = {"layerscale_value": 0.3, "drop_path_rate": 0.1, "pos_embed_rescale": 3.0}


class AST:
    TINY = {
        **SIZES, "model_type": "audio-spectrogram-transformer", "hidden_size": 42, "patch_size": 5,
        "frequency_stride": 3, "time_stride": 4, "max_length": 22, "num_mel_bins": 13,
    }  # fmt: skip
    VARIANTS = {
        "classes": {**TINY, "architectures": ["ASTForAudioClassification"], "num_labels": 11},
        "without biases": {**TINY, "qkv_bias": False},
    }
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 1214
