"""Test configs of the vision lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, WIDTH, Draw, Fields, some, without
from tests.families._qwen_vision import grid_image, grid_sizes, width_of
from tests.families._sizes import Distinct, Sized
from tests.families._towers import LAYERS_ONLY, blocks, image, image_sizes


class Qwen2VisionTransformerPretrained:
    TINY = {
        "model_type": "qwen2_vl_vision", "depth": 2, "embed_dim": 48, "num_heads": 6, "mlp_ratio": 3, "in_channels": 5,
        "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "hidden_size": 37,
    }  # fmt: skip
    REQUIRED: Fields = {"depth": 2}
    CONTEXT = 5120

    def drawn(draw: Draw) -> Fields:
        return some(draw, grid_image(draw, "embed_dim"), hidden_size=WIDTH, mlp_ratio=SMALL, hidden_act=st.just("gelu"))

    def sized(of: Distinct) -> Sized:
        config, sizes = grid_sizes(of, "embed_dim", "hidden_size")
        return {**config, "mlp_ratio": 3}, {**sizes, "F": 3 * sizes["D"]}


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

    def sized(of: Distinct) -> Sized:
        config, sizes = grid_sizes(of, "hidden_size", "out_hidden_size")
        side = config["spatial_merge_size"]
        config |= {"intermediate_size": of.F, "window_size": of.J * side * 2, "fullatt_block_indexes": []}
        window = (2 * side) ** 2
        return config, {**sizes, "F": of.F, "Wp": window, "Wk": window, "T": window * of.S, "S": window * of.S}


class Qwen2_5OmniVision:
    TINY = {**Qwen2_5_VisionTransformerPretrained.TINY, "model_type": "qwen2_5_omni_vision_encoder"}
    CONTEXT = Qwen2_5_VisionTransformerPretrained.CONTEXT
    REQUIRED = Qwen2_5_VisionTransformerPretrained.REQUIRED
    drawn = Qwen2_5_VisionTransformerPretrained.drawn
    sized = Qwen2_5_VisionTransformerPretrained.sized


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

    def sized(of: Distinct) -> Sized:
        config, sizes = grid_sizes(of, "hidden_size", "out_hidden_size")
        config |= {"intermediate_size": of.F, "num_position_embeddings": of.P**2, "deepstack_visual_indexes": [0]}
        return config, {**sizes, "F": of.F, "P": of.P**2}


class Qwen3VLMoeVision:
    TINY = {**Qwen3VLVision.TINY, "model_type": "qwen3_vl_moe_vision"}
    CONTEXT = Qwen3VLVision.CONTEXT
    REQUIRED = Qwen3VLVision.REQUIRED
    drawn = Qwen3VLVision.drawn
    sized = Qwen3VLVision.sized


class Qwen3OmniMoeVision:
    TINY = {**Qwen3VLVision.TINY, "model_type": "qwen3_omni_moe_vision_encoder"}
    CONTEXT = Qwen3VLVision.CONTEXT
    REQUIRED = Qwen3VLVision.REQUIRED
    drawn = Qwen3VLVision.drawn
    sized = Qwen3VLVision.sized


class Qwen3_5Vision:
    TINY = {**without(Qwen3VLVision.TINY, "deepstack_visual_indexes"), "model_type": "qwen3_5_vision"}
    REQUIRED: Fields = {"depth": 2}
    CONTEXT = Qwen3VLVision.CONTEXT

    def drawn(draw: Draw) -> Fields:
        return without(Qwen3VLVision.drawn(draw), "deepstack_visual_indexes")

    def sized(of: Distinct) -> Sized:
        config, sizes = Qwen3VLVision.sized(of)
        return without(config, "deepstack_visual_indexes"), sizes


class Qwen3_5MoeVision:
    TINY = {**Qwen3_5Vision.TINY, "model_type": "qwen3_5_moe_vision"}
    CONTEXT = Qwen3_5Vision.CONTEXT
    REQUIRED = Qwen3_5Vision.REQUIRED
    drawn = Qwen3_5Vision.drawn
    sized = Qwen3_5Vision.sized


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

    def sized(of: Distinct) -> Sized:
        config, sizes = grid_sizes(of, "hidden_size", "out_hidden_size")
        config |= {"intermediate_size": of.F, "image_size": of.P * of.J}
        sizes = {name: size for name, size in sizes.items() if name != "Du"}
        return config, {**sizes, "F": of.V, "Fm": of.F, "Dh": of.V, "P": of.P**2, "Tm": of.S}


class Glm4vMoeVision:
    TINY = {**Glm4vVision.TINY, "model_type": "glm4v_moe_vision"}
    CONTEXT = Glm4vVision.CONTEXT
    REQUIRED = Glm4vVision.REQUIRED
    drawn = Glm4vVision.drawn
    sized = Glm4vVision.sized


class GlmOcrVision:
    TINY = {**Glm4vVision.TINY, "model_type": "glm_ocr_vision"}
    VARIANTS = {"without biases": {**TINY, "attention_bias": False}}
    CONTEXT = Glm4vVision.CONTEXT
    REQUIRED = Glm4vVision.REQUIRED

    def drawn(draw: Draw) -> Fields:
        return Glm4vVision.drawn(draw)

    def sized(of: Distinct) -> Sized:
        config, sizes = Glm4vVision.sized(of)
        del sizes["P"]
        return config, {**sizes, "F": of.F, "Fm": of.V * sizes["Cc"]}


class Exaone4_5_Vision:
    TINY = {**Qwen2_5_VisionTransformerPretrained.TINY, "model_type": "exaone4_5_vision", "num_key_value_heads": 2}
    REQUIRED: Fields = {**Qwen2_5_VisionTransformerPretrained.REQUIRED}
    CONTEXT = Qwen2_5_VisionTransformerPretrained.CONTEXT

    def drawn(draw: Draw) -> Fields:
        fields = Qwen2_5_VisionTransformerPretrained.drawn(draw)
        heads = fields["num_heads"]
        return {**fields, "num_key_value_heads": draw(st.sampled_from([n for n in range(1, 13) if heads % n == 0]))}

    def sized(of: Distinct) -> Sized:
        config, sizes = Qwen2_5_VisionTransformerPretrained.sized(of)
        hidden, group = sizes["D"] * of.G, {"N": of.K * of.G, "G": of.G}
        config |= {"hidden_size": hidden, "num_heads": of.K * of.G, "num_key_value_heads": of.K}
        return config, {**sizes, **group, "D": hidden, "Du": sizes["Mp"] * hidden}


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

    def sized(of: Distinct) -> Sized:
        config, sizes = grid_sizes(of, "hidden_size", "out")
        config = {**without(config, "out", "temporal_patch_size"), "intermediate_size": of.F}
        return config, {**without(sizes, "Mp", "Du", "Dq"), "Px": of.J**2, "F": of.F}


class Kimi_K25Vision:
    TINY = {
        "model_type": "kimi_k25_vision", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "patch_size": 5, "pos_emb_height": 4, "pos_emb_width": 4,
    }  # fmt: skip
    SILENT = {"pos_emb_time": 7, "text_hidden_size": 9}
    CONTEXT = 4096
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        fields = {**blocks(draw, "vocab_size", "hidden_act"), "patch_size": draw(SMALL)}
        side = draw(SMALL)
        fields |= {"pos_emb_height": side, "pos_emb_width": side}
        return some(
            draw, {**fields, "hidden_size": 4 * fields["num_attention_heads"] * draw(SMALL)}, pos_emb_time=SMALL
        )

    def sized(of: Distinct) -> Sized:
        of.H *= 4
        config, sizes = image_sizes(of, front=0)
        config = without(config, "image_size", "num_channels")
        config |= {"pos_emb_height": of.P, "pos_emb_width": of.P}
        return config, {**sizes, "P": of.P**2, "Cc": 3}


class MiniMaxM3VLVision:
    TINY = {
        "model_type": "minimax_m3_vl_vision", "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 3, "image_size": 22, "patch_size": 5, "temporal_patch_size": 2,
        "spatial_merge_size": 2,
    }  # fmt: skip
    CONTEXT = 20736
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        return some(draw, image(draw), temporal_patch_size=SMALL, spatial_merge_size=SMALL)

    def sized(of: Distinct) -> Sized:
        of.H += 6
        config, sizes = image_sizes(of, front=0)
        del sizes["P"]
        turned = 6 * (of.H // 3 // 2)
        return {**config, "temporal_patch_size": 3}, {**sizes, "Px": 3 * of.J**2, "Hr": turned}


class Gemma4Vision:
    TINY = {
        "model_type": "gemma4_vision", "hidden_size": 46, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 71, "patch_size": 4, "pooling_kernel_size": 2,
        "position_embedding_size": 19, "default_output_length": 7,
    }  # fmt: skip
    REQUIRED: Fields = {"num_hidden_layers": 2}
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

    def sized(of: Distinct) -> Sized:
        side = 1 + of.seed % 3
        together, head = side**2, 4 * (of.H // 2 + 1)
        sizes = {**of.axis_names("KGLBDF"), "N": of.K * of.G, "H": head, "T": together * of.S, "S": together * of.S}
        sizes |= {"Cc": 3, "Px": of.J**2, "Mp": together, "P": of.P, "Xy": 2}
        config = {
            "hidden_size": of.D, "intermediate_size": of.F, "num_hidden_layers": of.L,
            "num_attention_heads": of.K * of.G, "num_key_value_heads": of.K, "head_dim": head, "patch_size": of.J,
            "pooling_kernel_size": side, "position_embedding_size": of.P,
        }  # fmt: skip
        return config, sizes


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

    def sized(of: Distinct) -> Sized:
        of.H *= 4
        config, sizes = image_sizes(of, front=1)
        edge = 1 + of.seed % 3
        side, merged = edge * of.more[0], edge**2
        config |= {"projector_input_dim": of.V, "projector_output_dim": of.V, "intermediate_size": merged * sizes["D"]}
        config |= {"image_size": side * of.J, "pixel_shuffle_ratio": 1 / edge}
        patches = merged * of.S
        tokens = {"T": patches + 1, "S": patches + 1, "Ti": patches, "Tm": of.S, "P": side**2 + 1}
        return config, {**sizes, **tokens, "F": merged * sizes["D"], "Mp": merged, "Dq": of.V, "Dh": of.V}


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
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        fields = some(draw, image(draw), use_qk_norm=ON, attention_bias=ON, use_mean_pooling=ON)
        return some(draw, fields, norm_type=st.sampled_from(["layer_norm", "rms_norm"]))

    def sized(of: Distinct) -> Sized:
        return image_sizes(of, front=1)


class PixtralVision:
    TINY = {
        "model_type": "pixtral", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5,
    }  # fmt: skip
    CONTEXT = 4096
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        """Heads whose halves turn by rows and by columns."""
        fields = image(draw)
        return {**fields, "hidden_size": 4 * fields["num_attention_heads"] * draw(SMALL)}

    def sized(of: Distinct) -> Sized:
        of.H *= 2  # its halves turn in pairs
        config, sizes = image_sizes(of, front=0)
        return config, {axis: size for axis, size in sizes.items() if axis != "P"}
