from tests.families._configs import SIZES, family

# fmt: off
CLIP_TEXT_MODEL = family("clip_text_model", SIZES, hidden_size=42, vocab_size=181, max_position_embeddings=37,
    projection_dim=29, eos_token_id=2, pad_token_id=0, bos_token_id=1,
    COMPARED={"projected": {"architectures": ["CLIPTextModelWithProjection"]}},
    INSTEAD={"flops.lm_head": "flops.mlp"})
CLIP_VISION_MODEL = family("clip_vision_model", SIZES, hidden_size=42, num_channels=5, image_size=22, patch_size=5,
    projection_dim=29, CONTEXT=50, COMPARED={"projected": {"architectures": ["CLIPVisionModelWithProjection"]}})
SIGLIP_VISION_MODEL = family("siglip_vision_model", SIZES, hidden_size=42, num_channels=5, image_size=33, patch_size=4,
    CONTEXT=196, COMPARED={"without a pooler": {"vision_use_head": False}})
SIGLIP_TEXT_MODEL = family("siglip_text_model", SIZES, hidden_size=42, vocab_size=181, max_position_embeddings=37,
    projection_size=29, pad_token_id=1)
family("siglip2_text_model", SIGLIP_TEXT_MODEL)
family("siglip2_vision_model", SIZES, hidden_size=42, num_channels=5, patch_size=4, num_patches=25, CONTEXT=256,
    COMPARED={"without a pooler": {"vision_use_head": False}}, SILENT={"image_size": 512})
family("altclip_vision_model", CLIP_VISION_MODEL,
    VARIANTS={"projected": {"architectures": ["AltCLIPVisionModelWithProjection"]}})
family("chinese_clip_vision_model", CLIP_VISION_MODEL,
    VARIANTS={"projected": {"architectures": ["ChineseCLIPVisionModelWithProjection"]}})
family("metaclip_2_text_model", CLIP_TEXT_MODEL,
    VARIANTS={"projected": {"architectures": ["MetaClip2TextModelWithProjection"]}})
family("metaclip_2_vision_model", CLIP_VISION_MODEL,
    VARIANTS={"projected": {"architectures": ["MetaClip2VisionModelWithProjection"]}})
IDEFICS3_VISION = family("idefics3_vision", SIZES, hidden_size=42, num_channels=5, image_size=22, patch_size=5,
    CONTEXT=49)
family("idefics2_vision", IDEFICS3_VISION)
family("smolvlm_vision", IDEFICS3_VISION)
family("phi4_multimodal_vision", SIGLIP_VISION_MODEL, CONTEXT=1024)
