"""Test configs of the clip lineage: a small one of each family, and variants."""

from tests.families._configs import SIZES, without


class CLIPText:
    TINY = {
        **SIZES, "model_type": "clip_text_model", "vocab_size": 181, "hidden_size": 42, "max_position_embeddings": 37,
        "projection_dim": 29, "eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1,
    }  # fmt: skip
    VARIANTS = {"projected": {**TINY, "architectures": ["CLIPTextModelWithProjection"]}}
    LOGITS = {"": TINY, **VARIANTS}
    INSTEAD = {"flops.lm_head": "flops.mlp"}
    SILENT = {"initializer_factor": 0.3}


class CLIPVision:
    TINY = {
        "model_type": "clip_vision_model", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5, "projection_dim": 29,
    }  # fmt: skip
    VARIANTS = {"projected": {**TINY, "architectures": ["CLIPVisionModelWithProjection"]}}
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 50
    SILENT = {"initializer_factor": 0.3}


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


class SiglipText:
    TINY = {
        **SIZES, "model_type": "siglip_text_model", "vocab_size": 181, "hidden_size": 42, "max_position_embeddings": 37,
        "projection_size": 29, "pad_token_id": 1,
    }  # fmt: skip


class Siglip2Text(SiglipText):
    TINY = {**SiglipText.TINY, "model_type": "siglip2_text_model"}


class Siglip2Vision:
    TINY = {
        **without(SiglipVision.TINY, "image_size"), "model_type": "siglip2_vision_model", "num_patches": 25,
    }  # fmt: skip
    VARIANTS = {"without a pooler": {**TINY, "vision_use_head": False}}
    LOGITS = {"": TINY, **VARIANTS}
    CONTEXT = 256
    SILENT = {"image_size": 512}


class AltCLIPVision(CLIPVision):
    TINY = {**CLIPVision.TINY, "model_type": "altclip_vision_model"}
    VARIANTS = {"projected": {**TINY, "architectures": ["AltCLIPVisionModelWithProjection"]}}


class ChineseCLIPVision(CLIPVision):
    TINY = {**CLIPVision.TINY, "model_type": "chinese_clip_vision_model"}
    VARIANTS = {"projected": {**TINY, "architectures": ["ChineseCLIPVisionModelWithProjection"]}}


class MetaClip2Text(CLIPText):
    TINY = {**CLIPText.TINY, "model_type": "metaclip_2_text_model"}
    VARIANTS = {"projected": {**TINY, "architectures": ["MetaClip2TextModelWithProjection"]}}


class MetaClip2Vision(CLIPVision):
    TINY = {**CLIPVision.TINY, "model_type": "metaclip_2_vision_model"}
    VARIANTS = {"projected": {**TINY, "architectures": ["MetaClip2VisionModelWithProjection"]}}


class Idefics3Vision:
    TINY = {
        "model_type": "idefics3_vision", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5,
    }  # fmt: skip
    CONTEXT = 49


class Idefics2Vision(Idefics3Vision):
    TINY = {**Idefics3Vision.TINY, "model_type": "idefics2_vision"}


class SmolVLMVision:
    TINY = {**Idefics3Vision.TINY, "model_type": "smolvlm_vision"}
    CONTEXT = 49


class Phi4MultimodalVision:
    TINY = {**SiglipVision.TINY, "model_type": "phi4_multimodal_vision"}
    CONTEXT = 1024
    SILENT = {"crop_size": 448, "feature_layer": -2, "image_token_id": 3}
