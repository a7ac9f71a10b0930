"""Test configs of the vision lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, WIDTH, Draw, Fields, some, without
from tests.families._qwen_vision import grid_image, width_of
from tests.families._towers import blocks, image


class Qwen2VisionTransformerPretrained:
    TINY = {
        "model_type": "qwen2_vl_vision", "depth": 2, "embed_dim": 48, "num_heads": 6, "mlp_ratio": 3, "in_channels": 5,
        "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "hidden_size": 37,
    }  # fmt: skip
    REQUIRED: Fields = {"depth": 2}
    CONTEXT = 5120

    def drawn(draw: Draw) -> Fields:
        return some(draw, grid_image(draw, "embed_dim"), hidden_size=WIDTH, mlp_ratio=SMALL, hidden_act=st.just("gelu"))


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

    def drawn(draw: Draw) -> Fields:
        fields = {**grid_image(draw, "hidden_size"), "intermediate_size": draw(WIDTH)}
        numbers = st.integers(0, fields["depth"])
        fields["fullatt_block_indexes"] = draw(st.lists(numbers, max_size=3))
        merged = fields.get("spatial_merge_size", 2) * fields.get("patch_size", 14)
        fields["window_size"] = merged * draw(st.integers(1, 3)) + draw(st.integers(0, merged - 1))
        return some(draw, fields, out_hidden_size=WIDTH, hidden_act=st.just("silu"), tokens_per_second=SMALL)


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

    def drawn(draw: Draw) -> Fields:
        fields = {**grid_image(draw, "hidden_size"), "intermediate_size": draw(WIDTH)}
        numbers = st.integers(0, fields["depth"] - 1)
        fields["deepstack_visual_indexes"] = draw(st.lists(numbers, unique=True, max_size=3))
        rows = SMALL.map(lambda side: side**2)
        return some(draw, fields, out_hidden_size=WIDTH, num_position_embeddings=rows, hidden_act=st.just("gelu"))


class Qwen3VLMoeVision(Qwen3VLVision):
    TINY = {**Qwen3VLVision.TINY, "model_type": "qwen3_vl_moe_vision"}


class Qwen3OmniMoeVision(Qwen3VLVision):
    TINY = {**Qwen3VLVision.TINY, "model_type": "qwen3_omni_moe_vision_encoder"}


class Qwen3_5Vision(Qwen3VLVision):
    TINY = {**without(Qwen3VLVision.TINY, "deepstack_visual_indexes"), "model_type": "qwen3_5_vision"}
    REQUIRED: Fields = {"depth": 2}

    def drawn(draw: Draw) -> Fields:
        return without(Qwen3VLVision.drawn(draw), "deepstack_visual_indexes")


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

    def drawn(draw: Draw) -> Fields:
        fields = {**grid_image(draw, "hidden_size"), "intermediate_size": draw(WIDTH)}
        patch = fields.get("patch_size", 14)
        fields["image_size"] = patch * draw(SMALL) + draw(st.integers(0, patch - 1))
        return some(draw, fields, out_hidden_size=WIDTH, attention_bias=ON, hidden_act=st.just("silu"))


class Glm4vMoeVision(Glm4vVision):
    TINY = {**Glm4vVision.TINY, "model_type": "glm4v_moe_vision"}


class GlmOcrVision(Glm4vVision):
    TINY = {**Glm4vVision.TINY, "model_type": "glm_ocr_vision"}
    VARIANTS = {"without biases": {**TINY, "attention_bias": False}}

    def drawn(draw: Draw) -> Fields:
        return Glm4vVision.drawn(draw)


class Exaone4_5_Vision(Qwen2_5_VisionTransformerPretrained):
    TINY = {**Qwen2_5_VisionTransformerPretrained.TINY, "model_type": "exaone4_5_vision", "num_key_value_heads": 2}
    REQUIRED: Fields = {**Qwen2_5_VisionTransformerPretrained.REQUIRED}

    def drawn(draw: Draw) -> Fields:
        fields = Qwen2_5_VisionTransformerPretrained.drawn(draw)
        heads = fields["num_heads"]
        return {**fields, "num_key_value_heads": draw(st.sampled_from([n for n in range(1, 13) if heads % n == 0]))}


class Ernie4_5_VLMoeVisionTransformerPretrained:
    TINY = {
        "model_type": "ernie4_5_vl_moe_vision", "depth": 2, "hidden_size": 48, "num_heads": 6, "intermediate_size": 71,
        "in_channels": 5, "patch_size": 4, "temporal_patch_size": 1, "spatial_merge_size": 2,
    }  # fmt: skip
    REQUIRED: Fields = {"depth": 2}
    CONTEXT = 5120

    def drawn(draw: Draw) -> Fields:
        fields = without(grid_image(draw, "hidden_size"), "temporal_patch_size")
        return some(draw, width_of(draw, fields), hidden_act=st.just("gelu"))


class Kimi_K25Vision:
    TINY = {
        "model_type": "kimi_k25_vision", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "patch_size": 5, "pos_emb_height": 4, "pos_emb_width": 4,
    }  # fmt: skip
    SILENT = {"pos_emb_time": 7, "text_hidden_size": 9}
    CONTEXT = 4096

    def drawn(draw: Draw) -> Fields:
        fields = {**blocks(draw, "vocab_size", "hidden_act"), "patch_size": draw(SMALL)}
        side = draw(SMALL)
        fields |= {"pos_emb_height": side, "pos_emb_width": side}
        return some(
            draw, {**fields, "hidden_size": 4 * fields["num_attention_heads"] * draw(SMALL)}, pos_emb_time=SMALL
        )


class MiniMaxM3VLVision:
    TINY = {
        "model_type": "minimax_m3_vl_vision", "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 3, "image_size": 22, "patch_size": 5, "temporal_patch_size": 2,
        "spatial_merge_size": 2,
    }  # fmt: skip
    CONTEXT = 20736

    def drawn(draw: Draw) -> Fields:
        return some(draw, image(draw), temporal_patch_size=SMALL, spatial_merge_size=SMALL)


class Gemma4Vision:
    TINY = {
        "model_type": "gemma4_vision", "hidden_size": 46, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 71, "patch_size": 4, "pooling_kernel_size": 2,
        "position_embedding_size": 19, "default_output_length": 7,
    }  # fmt: skip
    SILENT = {"use_clipped_linears": True, "global_head_dim": 9, "max_position_embeddings": 77}
    CONTEXT = 2520

    def drawn(draw: Draw) -> Fields:
        heads = draw(st.integers(1, 3))
        fields = {
            "hidden_size": draw(WIDTH),
            "intermediate_size": draw(WIDTH),
            "num_hidden_layers": draw(st.integers(1, 3)),
            "num_attention_heads": heads * draw(st.integers(1, 3)),
            "num_key_value_heads": heads,
            "head_dim": 4 * draw(SMALL),
            "default_output_length": draw(st.integers(1, 9)),
        }
        few, rows = st.integers(1, 3), st.integers(9, 40)
        return some(draw, fields, patch_size=SMALL, pooling_kernel_size=few, position_embedding_size=rows)


class Llama4Vision:
    TINY = {
        "model_type": "llama4_vision_model", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 192, "num_channels": 5, "image_size": 30, "patch_size": 5, "projector_input_dim": 37,
        "projector_output_dim": 37,
    }  # fmt: skip
    REQUIRED: Fields = {"num_hidden_layers": 2, "intermediate_size": 3072}
    CONTEXT = 1025

    def drawn(draw: Draw) -> Fields:
        fields = without(blocks(draw, "vocab_size"), "hidden_act")
        hidden = 4 * fields["num_attention_heads"] * draw(SMALL)
        side, patch, width = draw(st.integers(1, 3)), draw(SMALL), draw(WIDTH)
        fields |= {"hidden_size": hidden, "pixel_shuffle_ratio": 1 / side, "intermediate_size": side**2 * hidden}
        fields |= {"patch_size": patch, "image_size": patch * side * draw(st.integers(1, 3))}
        return {**fields, "projector_input_dim": width, "projector_output_dim": width, "num_channels": draw(SMALL)}


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

    def drawn(draw: Draw) -> Fields:
        fields = some(draw, image(draw), use_qk_norm=ON, attention_bias=ON, use_mean_pooling=ON)
        return some(draw, fields, norm_type=st.sampled_from(["layer_norm", "rms_norm"]))


class PixtralVision:
    TINY = {
        "model_type": "pixtral", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5,
    }  # fmt: skip
    CONTEXT = 4096

    def drawn(draw: Draw) -> Fields:
        """Heads whose halves turn by rows and by columns."""
        fields = image(draw)
        return {**fields, "hidden_size": 4 * fields["num_attention_heads"] * draw(SMALL)}
