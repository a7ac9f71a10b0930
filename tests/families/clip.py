"""Test configs of the clip lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import ON, WIDTH, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized
from tests.families._towers import LAYERS_ONLY, blocks, image, image_sizes, text_sizes


class CLIPText:
    TINY = {
        "model_type": "clip_text_model", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 37, "projection_dim": 29,
        "eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1,
    }  # fmt: skip
    VARIANTS = {"projected": {**TINY, "architectures": ["CLIPTextModelWithProjection"]}}
    LOGITS = {"": TINY, **VARIANTS}
    INSTEAD = {"flops.lm_head": "flops.mlp"}
    SILENT = {"initializer_factor": 0.3}
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        fields = {**blocks(draw), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        return some(draw, fields, max_position_embeddings=st.integers(25, 40), projection_dim=WIDTH)

    def sized(of: Distinct) -> Sized:
        named = {"architectures": ["CLIPTextModelWithProjection"], "projection_dim": of.J}
        config, sizes = text_sizes(of, **named)
        return config, {**sizes, "Dv": of.J}


class CLIPVision:
    TINY = {
        "model_type": "clip_vision_model", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5, "projection_dim": 29,
    }  # fmt: skip
    VARIANTS = {"projected": {**TINY, "architectures": ["CLIPVisionModelWithProjection"]}}
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 50
    SILENT = {"initializer_factor": 0.3}
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        return some(draw, image(draw), projection_dim=WIDTH)

    def sized(of: Distinct) -> Sized:
        config, sizes = image_sizes(of, front=1)
        config |= {"architectures": ["CLIPVisionModelWithProjection"], "projection_dim": of.more[2]}
        return config, {**sizes, "Dv": of.more[2]}


class SiglipVision:
    TINY = {
        "model_type": "siglip_vision_model", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 5, "image_size": 33, "patch_size": 4,
    }  # fmt: skip
    VARIANTS = {"without a pooler": {**TINY, "vision_use_head": False}}
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 196
    SILENT = {"projection_dim": 2048, "num_image_tokens": 256, "projector_hidden_act": "gelu_fast", "vocab_size": 7}
    SILENT |= {"num_positions": 256}
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        return some(draw, image(draw), vision_use_head=ON)

    def sized(of: Distinct) -> Sized:
        config, sizes = image_sizes(of, front=0)
        return config, {**sizes, "Qp": 1, "Np": sizes["N"], "Hz": sizes["H"]}


class SiglipText:
    TINY = {
        "model_type": "siglip_text_model", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 37, "projection_size": 29,
        "pad_token_id": 1,
    }  # fmt: skip
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        fields = {**blocks(draw), "pad_token_id": 1}
        return some(draw, fields, max_position_embeddings=st.integers(25, 40), projection_size=WIDTH)

    def sized(of: Distinct) -> Sized:
        config, sizes = text_sizes(of, projection_size=of.J)
        return config, {**sizes, "Dv": of.J}


class Siglip2Text:
    TINY = {**SiglipText.TINY, "model_type": "siglip2_text_model"}
    REQUIRED = SiglipText.REQUIRED

    def drawn(draw: Draw) -> Fields:
        return SiglipText.drawn(draw)

    def sized(of: Distinct) -> Sized:
        return SiglipText.sized(of)


class Siglip2Vision:
    TINY = {
        **without(SiglipVision.TINY, "image_size"), "model_type": "siglip2_vision_model", "num_patches": 25,
    }  # fmt: skip
    VARIANTS = {"without a pooler": {**TINY, "vision_use_head": False}}
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 256
    SILENT = {"image_size": 512}
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        sides = st.integers(1, 5).map(lambda side: side**2)
        return some(draw, without(SiglipVision.drawn(draw), "image_size"), num_patches=sides)

    def sized(of: Distinct) -> Sized:
        config, sizes = SiglipVision.sized(of)
        side = of.more[0]
        return {**without(config, "image_size"), "num_patches": side**2}, {**sizes, "P": side**2}


class AltCLIPVision:
    TINY = {**CLIPVision.TINY, "model_type": "altclip_vision_model"}
    VARIANTS = {"projected": {**TINY, "architectures": ["AltCLIPVisionModelWithProjection"]}}
    CONTEXT, REQUIRED = CLIPVision.CONTEXT, CLIPVision.REQUIRED

    def drawn(draw: Draw) -> Fields:
        return CLIPVision.drawn(draw)

    def sized(of: Distinct) -> Sized:
        config, sizes = CLIPVision.sized(of)
        return {**config, "architectures": ["AltCLIPVisionModelWithProjection"]}, sizes


class ChineseCLIPVision:
    TINY = {**CLIPVision.TINY, "model_type": "chinese_clip_vision_model"}
    VARIANTS = {"projected": {**TINY, "architectures": ["ChineseCLIPVisionModelWithProjection"]}}
    CONTEXT, REQUIRED = CLIPVision.CONTEXT, CLIPVision.REQUIRED

    def drawn(draw: Draw) -> Fields:
        return CLIPVision.drawn(draw)

    def sized(of: Distinct) -> Sized:
        config, sizes = CLIPVision.sized(of)
        return {**config, "architectures": ["ChineseCLIPVisionModelWithProjection"]}, sizes


class MetaClip2Text:
    TINY = {**CLIPText.TINY, "model_type": "metaclip_2_text_model"}
    VARIANTS = {"projected": {**TINY, "architectures": ["MetaClip2TextModelWithProjection"]}}
    REQUIRED, INSTEAD = CLIPText.REQUIRED, CLIPText.INSTEAD

    def drawn(draw: Draw) -> Fields:
        return CLIPText.drawn(draw)

    def sized(of: Distinct) -> Sized:
        config, sizes = CLIPText.sized(of)
        return {**config, "architectures": ["MetaClip2TextModelWithProjection"]}, sizes


class MetaClip2Vision:
    TINY = {**CLIPVision.TINY, "model_type": "metaclip_2_vision_model"}
    VARIANTS = {"projected": {**TINY, "architectures": ["MetaClip2VisionModelWithProjection"]}}
    CONTEXT, REQUIRED = CLIPVision.CONTEXT, CLIPVision.REQUIRED

    def drawn(draw: Draw) -> Fields:
        return CLIPVision.drawn(draw)

    def sized(of: Distinct) -> Sized:
        config, sizes = CLIPVision.sized(of)
        return {**config, "architectures": ["MetaClip2VisionModelWithProjection"]}, sizes


class Idefics3Vision:
    TINY = {
        "model_type": "idefics3_vision", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5,
    }  # fmt: skip
    CONTEXT = 49
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        return image(draw)

    def sized(of: Distinct) -> Sized:
        return image_sizes(of, front=0)


class Idefics2Vision:
    TINY = {**Idefics3Vision.TINY, "model_type": "idefics2_vision"}
    REQUIRED = LAYERS_ONLY
    CONTEXT = Idefics3Vision.CONTEXT
    drawn = Idefics3Vision.drawn
    sized = Idefics3Vision.sized


class SmolVLMVision:
    TINY = {**Idefics3Vision.TINY, "model_type": "smolvlm_vision"}
    CONTEXT = 49
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        return Idefics3Vision.drawn(draw)

    def sized(of: Distinct) -> Sized:
        return Idefics3Vision.sized(of)


class Phi4MultimodalVision:
    TINY = {**SiglipVision.TINY, "model_type": "phi4_multimodal_vision"}
    CONTEXT = 1024
    SILENT = {"crop_size": 448, "feature_layer": -2, "image_token_id": 3}
    REQUIRED = LAYERS_ONLY
    sized = SiglipVision.sized

    def drawn(draw: Draw) -> Fields:
        return image(draw)
