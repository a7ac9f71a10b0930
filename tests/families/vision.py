"""Test configs of the vision lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, SIZES, Fields, without


class Qwen2VisionTransformerPretrained:
    TINY = {
        "model_type": "qwen2_vl_vision", "depth": 2, "embed_dim": 48, "num_heads": 6, "mlp_ratio": 3, "in_channels": 5,
        "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "hidden_size": 37,
    }  # fmt: skip
    REQUIRED: Fields = {"depth": 2}
    CONTEXT = 5120


class Qwen2_5_VisionTransformerPretrained:
    TINY = {
        "model_type": "qwen2_5_vl_vision", "depth": 3, "hidden_size": 48, "num_heads": 6, "intermediate_size": 71,
        "in_channels": 5, "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 37,
        "window_size": 18, "fullatt_block_indexes": [1],
    }  # fmt: skip
    VARIANTS = {"without windows": {**TINY, "fullatt_block_indexes": [0, 1, 2, 7]}}
    LOGITS = {"": TINY, **VARIANTS}
    REQUIRED: Fields = {"depth": 2, "fullatt_block_indexes": [1]}
    CONTEXT = 5120


class Qwen2_5OmniVision(Qwen2_5_VisionTransformerPretrained):
    TINY = {**Qwen2_5_VisionTransformerPretrained.TINY, "model_type": "qwen2_5_omni_vision_encoder"}


class Qwen3VLVision:
    TINY = {
        "model_type": "qwen3_vl_vision", "depth": 3, "hidden_size": 48, "num_heads": 6, "intermediate_size": 71,
        "in_channels": 5, "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 37,
        "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 2],
    }  # fmt: skip
    VARIANTS = {"one merger": {**TINY, "deepstack_visual_indexes": []}}
    REQUIRED: Fields = {"depth": 2, "deepstack_visual_indexes": [1]}
    CONTEXT = 2304


class Qwen3VLMoeVision(Qwen3VLVision):
    TINY = {**Qwen3VLVision.TINY, "model_type": "qwen3_vl_moe_vision"}


class Qwen3OmniMoeVision(Qwen3VLVision):
    TINY = {**Qwen3VLVision.TINY, "model_type": "qwen3_omni_moe_vision_encoder"}


class Qwen3_5Vision(Qwen3VLVision):
    TINY = {**without(Qwen3VLVision.TINY, "deepstack_visual_indexes"), "model_type": "qwen3_5_vision"}
    REQUIRED: Fields = {"depth": 2}


class Qwen3_5MoeVision(Qwen3_5Vision):
    TINY = {**Qwen3_5Vision.TINY, "model_type": "qwen3_5_moe_vision"}


class Glm4vVision:
    TINY = {
        "model_type": "glm4v_vision", "depth": 3, "hidden_size": 48, "num_heads": 6, "intermediate_size": 71,
        "in_channels": 5, "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 37,
        "image_size": 18, "attention_bias": True,
    }  # fmt: skip
    REQUIRED: Fields = {"depth": 2}
    CONTEXT = 576


class Glm4vMoeVision(Glm4vVision):
    TINY = {**Glm4vVision.TINY, "model_type": "glm4v_moe_vision"}


class GlmOcrVision(Glm4vVision):
    TINY = {**Glm4vVision.TINY, "model_type": "glm_ocr_vision"}
    VARIANTS = {"without biases": {**TINY, "attention_bias": False}}


class Exaone4_5_Vision(Qwen2_5_VisionTransformerPretrained):
    TINY = {**Qwen2_5_VisionTransformerPretrained.TINY, "model_type": "exaone4_5_vision", "num_key_value_heads": 2}
    REQUIRED: Fields = {**Qwen2_5_VisionTransformerPretrained.REQUIRED}


class Ernie4_5_VLMoeVisionTransformerPretrained:
    TINY = {
        "model_type": "ernie4_5_vl_moe_vision", "depth": 2, "hidden_size": 48, "num_heads": 6, "intermediate_size": 71,
        "in_channels": 5, "patch_size": 4, "temporal_patch_size": 1, "spatial_merge_size": 2,
    }  # fmt: skip
    REQUIRED: Fields = {"depth": 2}
    CONTEXT = 5120


class Kimi_K25Vision:
    TINY = {**SIZES, "model_type": "kimi_k25_vision", "patch_size": 5, "pos_emb_height": 4, "pos_emb_width": 4}
    SILENT = {"pos_emb_time": 7, "text_hidden_size": 9}
    CONTEXT = 4096


class MiniMaxM3VLVision:
    TINY = {
        **SIZES, "model_type": "minimax_m3_vl_vision", "hidden_size": 96, "num_channels": 3, "image_size": 22,
        "patch_size": 5, "temporal_patch_size": 2, "spatial_merge_size": 2,
    }  # fmt: skip
    CONTEXT = 20736


class Gemma4Vision:
    TINY = {
        **GROUPED, "model_type": "gemma4_vision", "hidden_size": 46, "head_dim": 12, "patch_size": 4,
        "pooling_kernel_size": 2, "position_embedding_size": 19, "default_output_length": 7,
    }  # fmt: skip
    SILENT = {"use_clipped_linears": True, "global_head_dim": 9, "max_position_embeddings": 77}
    CONTEXT = 2520


class Llama4Vision:
    TINY = {
        **SIZES, "model_type": "llama4_vision_model", "intermediate_size": 192, "num_channels": 5, "image_size": 30,
        "patch_size": 5, "projector_input_dim": 37, "projector_output_dim": 37,
    }  # fmt: skip
    REQUIRED: Fields = {"num_hidden_layers": 2, "intermediate_size": 3072}
    CONTEXT = 1025


class InternVLVision:
    TINY = {
        "model_type": "internvl_vision", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5,
    }  # fmt: skip
    VARIANTS = {
        "with every norm": {**TINY, "use_qk_norm": True, "attention_bias": True, "use_mean_pooling": False},
        "of RMSNorms": {**TINY, "norm_type": "rms_norm"},
    }
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 1025
    SILENT = {"layer_scale_init_value": 0.3}


class PixtralVision:
    TINY = {**SIZES, "model_type": "pixtral", "num_channels": 5, "image_size": 22, "patch_size": 5}
    CONTEXT = 4096
