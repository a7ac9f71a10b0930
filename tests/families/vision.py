from tests.families._configs import ABSENT, GROUPED, SIZES, family

# fmt: off
family("qwen2_vl_vision", depth=2, embed_dim=48, num_heads=6, mlp_ratio=3, in_channels=5, patch_size=4,
    temporal_patch_size=2, spatial_merge_size=2, hidden_size=37, CONTEXT=5120, REQUIRED={"depth": 2})
QWEN2_5_VL_VISION = family("qwen2_5_vl_vision", depth=3, hidden_size=48, num_heads=6,
    intermediate_size=71, in_channels=5, patch_size=4, temporal_patch_size=2, spatial_merge_size=2, out_hidden_size=37,
    window_size=18, fullatt_block_indexes=[1], CONTEXT=5120,
    COMPARED={"without windows": {"fullatt_block_indexes": [0, 1, 2, 7]}},
    REQUIRED={"depth": 2, "fullatt_block_indexes": [1]})
family("qwen2_5_omni_vision_encoder", QWEN2_5_VL_VISION)
QWEN3_VL_VISION = family("qwen3_vl_vision", depth=3, hidden_size=48, num_heads=6, intermediate_size=71, in_channels=5,
    patch_size=4, temporal_patch_size=2, spatial_merge_size=2, out_hidden_size=37, num_position_embeddings=16,
    deepstack_visual_indexes=[0, 2], CONTEXT=2304, VARIANTS={"one merger": {"deepstack_visual_indexes": []}},
    REQUIRED={"depth": 2, "deepstack_visual_indexes": [1]})
family("qwen3_vl_moe_vision", QWEN3_VL_VISION)
family("qwen3_omni_moe_vision_encoder", QWEN3_VL_VISION)
QWEN3_5_VISION = family("qwen3_5_vision", QWEN3_VL_VISION, deepstack_visual_indexes=ABSENT, REQUIRED={"depth": 2})
family("qwen3_5_moe_vision", QWEN3_5_VISION)
GLM4V_VISION = family("glm4v_vision", QWEN3_5_VISION, image_size=18, attention_bias=True,
    num_position_embeddings=ABSENT, CONTEXT=576)
family("glm4v_moe_vision", GLM4V_VISION)
family("glm_ocr_vision", GLM4V_VISION, VARIANTS={"without biases": {"attention_bias": False}})
family("exaone4_5_vision", QWEN2_5_VL_VISION, num_key_value_heads=2)
family("ernie4_5_vl_moe_vision", depth=2, hidden_size=48, num_heads=6, intermediate_size=71, in_channels=5,
    patch_size=4, temporal_patch_size=1, spatial_merge_size=2, CONTEXT=5120, REQUIRED={"depth": 2})
family("kimi_k25_vision", SIZES, patch_size=5, pos_emb_height=4, pos_emb_width=4, CONTEXT=4096,
    SILENT={"pos_emb_time": 7})
family("minimax_m3_vl_vision", SIZES, hidden_size=96, num_channels=3, image_size=22, patch_size=5,
    temporal_patch_size=2, spatial_merge_size=2, CONTEXT=20736)
family("gemma4_vision", GROUPED, hidden_size=46, head_dim=12, patch_size=4, pooling_kernel_size=2,
    position_embedding_size=19, default_output_length=7, CONTEXT=2520)
family("llama4_vision_model", SIZES, intermediate_size=192, num_channels=5, image_size=30, patch_size=5,
    projector_input_dim=37, projector_output_dim=37, CONTEXT=1025,
    REQUIRED={"num_hidden_layers": 2, "intermediate_size": 3072})
family("internvl_vision", SIZES, hidden_size=42, num_channels=5, image_size=22, patch_size=5, CONTEXT=1025,
    COMPARED={
        "with every norm": {"use_qk_norm": True, "attention_bias": True, "use_mean_pooling": False},
        "of RMSNorms": {"norm_type": "rms_norm"},
    })
family("pixtral", SIZES, num_channels=5, image_size=22, patch_size=5, CONTEXT=4096)
