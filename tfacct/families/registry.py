"""Every `model_type`: its module, its class, and the month in which its first model was released."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

from tfacct.families.family_config import FamilyConfig

CUSTOM = "custom"
"""The type of custom models, described part by part."""
Part = Literal["text", "vision", "audio"]
"""One model of a composite config."""


class Submodel(NamedTuple):
    """One model of a composite config, or the only one of another config."""

    fields: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    """Names of parts that are not included."""
    defaulted: Mapping[str, Any] = {}
    """Fields with default values."""
    parts: tuple[Part, ...] = ()
    """Parts of the composite that are counted together."""


FAMILIES = {  # model_type: (module, class, release)
    "llama": ("llama", "Llama", "2023-02"),
    "arcee": ("llama", "Arcee", "2025-06"),
    "cwm": ("llama", "Cwm", "2025-09"),
    "helium": ("llama", "Helium", "2025-01"),
    "iquestcoder": ("llama", "IQuestCoder", "2026-01"),
    "seed_oss": ("llama", "SeedOss", "2025-08"),
    "bitnet": ("llama", "BitNet", "2025-04"),
    "apertus": ("llama", "Apertus", "2025-09"),
    "nanochat": ("llama", "NanoChat", "2025-10"),
    "baichuan": ("llama", "Baichuan", "2023-06"),
    "internlm2": ("llama", "InternLM2", "2024-01"),
    "internlm3": ("llama", "InternLM3", "2025-01"),
    "deci": ("llama", "DeciLM", "2023-12"),
    "mllama_text_model": ("llama", "Mllama", "2024-09"),
    "chameleon_text": ("llama", "Chameleon", "2024-05"),
    "aria_text": ("llama", "AriaText", "2024-10"),
    "jais2": ("llama", "Jais2", "2025-12"),
    "smollm3": ("llama", "SmolLM3", "2025-07"),
    "mistral": ("mistral", "Mistral", "2023-10"),
    "mixtral": ("mistral", "Mixtral", "2023-12"),
    "ministral": ("mistral", "Ministral", "2024-10"),
    "ministral3": ("mistral", "Ministral3", "2025-12"),
    "starcoder2": ("mistral", "Starcoder2", "2024-02"),
    "phi": ("phi", "Phi", "2023-06"),
    "phi3": ("phi", "Phi3", "2024-04"),
    "phimoe": ("phi", "Phimoe", "2024-08"),
    "minicpm": ("minicpm", "MiniCPM", "2024-02"),
    "minicpm3": ("minicpm", "MiniCPM3", "2024-09"),
    "exaone": ("exaone", "Exaone", "2024-08"),
    "exaone4": ("exaone", "Exaone4", "2025-07"),
    "exaone_moe": ("exaone", "ExaoneMoe", "2025-12"),
    "olmo": ("olmo", "Olmo", "2024-02"),
    "olmo2": ("olmo", "Olmo2", "2024-11"),
    "olmo3": ("olmo", "Olmo3", "2025-11"),
    "olmoe": ("olmo", "Olmoe", "2024-09"),
    "olmo_hybrid": ("olmo", "OlmoHybrid", "2026-02"),
    "flex_olmo": ("olmo", "FlexOlmo", "2025-07"),
    "granite": ("granite", "Granite", "2024-08"),
    "granitemoe": ("granite", "GraniteMoe", "2024-08"),
    "granitemoeshared": ("granite", "GraniteMoeShared", "2025-02"),
    "granitemoehybrid": ("granite", "GraniteMoeHybrid", "2025-05"),
    "granite_swa": ("granite", "GraniteSWA", "2026-07"),
    "granitemoe_swa": ("granite", "GraniteMoeSWA", "2026-07"),
    "hyperclovax": ("granite", "HyperCLOVAX", "2025-07"),
    "cohere": ("cohere", "Cohere", "2024-03"),
    "cohere2": ("cohere", "Cohere2", "2024-12"),
    "cohere2_moe": ("cohere", "Cohere2Moe", "2026-05"),
    "cohere_compass_text": ("cohere", "CohereCompass", "2026-08"),
    "qwen": ("qwen", "Qwen1", "2023-08"),
    "qwen2": ("qwen", "Qwen2", "2024-07"),
    "qwen2_moe": ("qwen", "Qwen2Moe", "2024-03"),
    "qwen3": ("qwen", "Qwen3", "2025-04"),
    "qwen3_moe": ("qwen", "Qwen3Moe", "2025-04"),
    "qwen3_next": ("qwen", "Qwen3Next", "2025-09"),
    "qwen3_5_text": ("qwen", "Qwen3_5", "2026-02"),
    "qwen3_5_moe_text": ("qwen", "Qwen3_5Moe", "2026-02"),
    "mimo": ("qwen", "MiMo", "2025-05"),
    "mimo_v2_flash": ("qwen", "MiMoV2Flash", "2025-12"),
    "mellum": ("qwen", "Mellum", "2026-05"),
    "gemma": ("gemma", "Gemma", "2024-02"),
    "gemma2": ("gemma", "Gemma2", "2024-06"),
    "gemma3_text": ("gemma", "Gemma3Text", "2025-03"),
    "vaultgemma": ("gemma", "VaultGemma", "2025-09"),
    "gemma3n_text": ("gemma", "Gemma3n", "2025-05"),
    "gemma4_text": ("gemma", "Gemma4", "2026-04"),
    "embedding_gemma2_text": ("gemma", "EmbeddingGemma2Text", "2026-09"),
    "t5": ("t5", "T5", "2019-10"),
    "mt5": ("t5", "MT5", "2020-10"),
    "umt5": ("t5", "UMT5", "2023-04"),
    "t5gemma": ("t5", "T5Gemma", "2025-04"),
    "deepseek_v2": ("deepseek", "DeepseekV2", "2024-05"),
    "deepseek_v3": ("deepseek", "DeepseekV3", "2024-12"),
    "deepseek_v32": ("deepseek", "DeepseekV32", "2025-12"),
    "kimi_k2": ("deepseek", "KimiK2", "2025-07"),
    "kimi_linear": ("deepseek", "KimiLinear", "2025-10"),
    "youtu": ("deepseek", "Youtu", "2025-12"),
    "axk1": ("deepseek", "AXK1", "2026-01"),
    "axk2": ("deepseek", "AXK2", "2026-07"),
    "dots1": ("deepseek", "Dots1", "2025-06"),
    "dots3_note_text": ("deepseek", "Dots3Note", "2026-09"),
    "mistral4": ("deepseek", "Mistral4", "2026-03"),
    "mistral_large4_text": ("deepseek", "MistralLarge4", "2026-09"),
    "longcat_flash": ("deepseek", "LongcatFlash", "2025-08"),
    "deepseek_v4": ("deepseek_v4", "DeepseekV4", "2026-04"),
    "glm": ("glm", "Glm", "2024-06"),
    "glm4": ("glm", "Glm4", "2025-04"),
    "glm4_moe": ("glm", "Glm4Moe", "2025-07"),
    "glm4_moe_lite": ("glm", "Glm4MoeLite", "2026-01"),
    "glm_moe_dsa": ("glm", "GlmMoeDsa", "2026-02"),
    "glm5_next_text": ("glm", "Glm5Next", "2026-08"),
    "solar_open": ("glm", "SolarOpen", "2026-01"),
    "bailing_moe": ("bailing", "BailingMoeV2", "2025-09"),
    "bailing_moe_linear": ("bailing", "BailingMoeLinearV2", "2025-09"),
    "bailing_moe_v2_5": ("bailing", "BailingMoeV2_5", "2026-02"),
    "bailing_hybrid": ("bailing", "BailingHybrid", "2026-08"),
    "mamba": ("mamba", "Mamba", "2023-12"),
    "mamba2": ("mamba", "Mamba2", "2024-05"),
    "falcon_mamba": ("mamba", "FalconMamba", "2024-08"),
    "bamba": ("mamba", "Bamba", "2024-12"),
    "jamba": ("mamba", "Jamba", "2024-03"),
    "zamba2": ("mamba", "Zamba2", "2024-11"),
    "falcon_h1": ("mamba", "FalconH1", "2025-05"),
    "nemotron": ("nemotron", "Nemotron", "2024-02"),
    "nemotron-nas": ("nemotron", "NemotronNas", "2024-09"),
    "nemotron_h": ("nemotron", "NemotronH", "2025-04"),
    "lfm2": ("lfm", "Lfm2", "2025-07"),
    "lfm2_moe": ("lfm", "Lfm2Moe", "2025-10"),
    "lfm3": ("lfm", "Lfm3", "2026-10"),
    "minimax": ("minimax", "MiniMax", "2025-01"),
    "minimax_m1": ("minimax", "MiniMaxM1", "2025-06"),
    "minimax_text_01": ("minimax", "MiniMaxText01", "2025-01"),
    "minimax_m2": ("minimax", "MiniMaxM2", "2025-10"),
    "minimax_m3_vl_text": ("minimax", "MiniMaxM3VL", "2026-06"),
    "llama4_text": ("llama4", "Llama4", "2025-04"),
    "muse_glimmer_text": ("llama4", "MuseGlimmer", "2026-08"),
    "muse_spark_text": ("llama4", "MuseSpark", "2026-09"),
    "gpt_oss": ("gpt_oss", "GptOss", "2025-08"),
    "openai_privacy_filter": ("gpt_oss", "OpenAIPrivacyFilter", "2026-04"),
    "hunyuan_v1_dense": ("hunyuan", "HunYuanDenseV1", "2025-07"),
    "hunyuan_v1_moe": ("hunyuan", "HunYuanMoEV1", "2025-06"),
    "hy_v3": ("hunyuan", "HYV3", "2026-04"),
    "hy_v4": ("hunyuan", "HYV4", "2026-08"),
    "ernie4_5": ("ernie", "Ernie4_5", "2025-06"),
    "ernie4_5_moe": ("ernie", "Ernie4_5_Moe", "2025-06"),
    "ernie4_5_vl_moe_text": ("ernie", "Ernie4_5_VLMoe", "2025-06"),
    "afmoe": ("moe", "Afmoe", "2025-12"),
    "laguna": ("moe", "Laguna", "2026-04"),
    "step3p5": ("moe", "Step3p5", "2026-02"),
    "kolibri1": ("moe", "Kolibri1", "2026-10"),
    "flint": ("moe", "Flint", "2026-10"),
    "grok-1": ("moe", "Grok1", "2024-03"),
    "dbrx": ("moe", "Dbrx", "2024-03"),
    "stablelm": ("stablelm", "StableLm", "2023-09"),
    "persimmon": ("stablelm", "Persimmon", "2023-09"),
    "plamo3": ("stablelm", "Plamo3", "2025-10"),
    "gpt2": ("gpt", "GPT2", "2019-02"),
    "gpt_bigcode": ("gpt", "GPTBigCode", "2023-01"),
    "gpt_neo": ("gpt", "GPTNeo", "2021-03"),
    "gptj": ("gpt", "GPTJ", "2021-06"),
    "codegen": ("gpt", "CodeGen", "2022-03"),
    "openai-gpt": ("gpt", "OpenAIGPT", "2018-06"),
    "ctrl": ("gpt", "CTRL", "2019-09"),
    "jais": ("gpt", "JAIS", "2023-08"),
    "cs336": ("llama", "CS336", "2024-04"),
    "gpt_neox": ("gpt_neox", "GPTNeoX", "2022-04"),
    "gpt_neox_japanese": ("gpt_neox", "GPTNeoXJapanese", "2022-09"),
    "bloom": ("gpt_neox", "Bloom", "2022-07"),
    "falcon": ("gpt_neox", "Falcon", "2023-05"),
    "mpt": ("gpt_neox", "Mpt", "2023-05"),
    "opt": ("gpt", "OPT", "2022-05"),
    "openelm": ("llama", "OpenELM", "2024-04"),
    "telechat": ("llama", "Telechat", "2024-01"),
    "biogpt": ("gpt", "BioGpt", "2022-10"),
    "xglm": ("gpt", "XGLM", "2021-12"),
    "bart": ("bart", "Bart", "2019-10"),
    "plbart": ("bart", "PLBart", "2021-03"),
    "mvp": ("bart", "Mvp", "2022-06"),
    "mbart": ("bart", "MBart", "2020-01"),
    "pegasus": ("bart", "Pegasus", "2019-12"),
    "blenderbot": ("bart", "Blenderbot", "2020-04"),
    "blenderbot-small": ("bart", "BlenderbotSmall", "2020-04"),
    "fsmt": ("bart", "FSMT", "2019-07"),
    "m2m_100": ("bart", "M2M100", "2020-10"),
    "marian": ("bart", "Marian", "2018-04"),
    "whisper": ("bart", "Whisper", "2022-09"),
    "bert": ("bert", "Bert", "2018-10"),
    "electra": ("bert", "Electra", "2020-03"),
    "distilbert": ("bert", "DistilBert", "2019-10"),
    "albert": ("bert", "Albert", "2019-09"),
    "bert-generation": ("bert", "BertGeneration", "2019-07"),
    "chinese_clip_text_model": ("bert", "ChineseCLIPText", "2022-11"),
    "dpr": ("bert", "DPR", "2020-04"),
    "megatron-bert": ("bert", "MegatronBert", "2019-09"),
    "mpnet": ("bert", "MPNet", "2020-04"),
    "rembert": ("bert", "RemBert", "2020-10"),
    "splinter": ("bert", "Splinter", "2021-01"),
    "roberta": ("bert", "Roberta", "2019-07"),
    "roberta-prelayernorm": ("bert", "RobertaPreLayerNorm", "2019-04"),
    "xlm-roberta": ("bert", "XLMRoberta", "2019-11"),
    "xlm-roberta-xl": ("bert", "XLMRobertaXL", "2021-05"),
    "camembert": ("bert", "Camembert", "2019-11"),
    "data2vec-text": ("bert", "Data2VecText", "2022-02"),
    "altclip_text_model": ("bert", "AltCLIPText", "2022-11"),
    "gte": ("rotary_bert", "Gte", "2024-07"),
    "jina_bert": ("rotary_bert", "JinaBert", "2023-10"),
    "jina_embeddings_v3": ("rotary_bert", "JinaEmbeddingsV3", "2024-09"),
    "nomic_bert": ("rotary_bert", "NomicBert", "2024-02"),
    "modernbert": ("rotary_bert", "ModernBert", "2024-12"),
    "modernbert-decoder": ("rotary_bert", "ModernBertDecoder", "2025-07"),
    "eurobert": ("rotary_bert", "EuroBert", "2025-03"),
    "esm": ("rotary_bert", "Esm", "2019-04"),
    "esmc": ("rotary_bert", "Esmc", "2024-12"),
    "deberta": ("deberta", "Deberta", "2020-06"),
    "deberta-v2": ("deberta", "DebertaV2", "2020-06"),
    "xlm": ("xlm", "XLM", "2019-01"),
    "flaubert": ("xlm", "Flaubert", "2019-12"),
    "clip_text_model": ("clip", "CLIPText", "2021-03"),
    "clip_vision_model": ("clip", "CLIPVision", "2021-03"),
    "siglip_vision_model": ("clip", "SiglipVision", "2023-03"),
    "siglip_text_model": ("clip", "SiglipText", "2023-03"),
    "siglip2_text_model": ("clip", "Siglip2Text", "2025-02"),
    "siglip2_vision_model": ("clip", "Siglip2Vision", "2025-02"),
    "altclip_vision_model": ("clip", "AltCLIPVision", "2022-11"),
    "chinese_clip_vision_model": ("clip", "ChineseCLIPVision", "2022-11"),
    "metaclip_2_text_model": ("clip", "MetaClip2Text", "2025-07"),
    "metaclip_2_vision_model": ("clip", "MetaClip2Vision", "2025-07"),
    "idefics2_vision": ("clip", "Idefics2Vision", "2024-04"),
    "idefics3_vision": ("clip", "Idefics3Vision", "2024-08"),
    "smolvlm_vision": ("clip", "SmolVLMVision", "2025-02"),
    "phi4_multimodal_vision": ("clip", "Phi4MultimodalVision", "2025-03"),
    "vit": ("vit", "ViT", "2020-10"),
    "vit_msn": ("vit", "ViTMSN", "2022-04"),
    "deit": ("vit", "DeiT", "2020-12"),
    "ijepa": ("vit", "IJepa", "2023-01"),
    "beit": ("vit", "Beit", "2021-06"),
    "data2vec-vision": ("vit", "Data2VecVision", "2022-02"),
    "dinov2": ("vit", "Dinov2", "2023-04"),
    "dinov2_with_registers": ("vit", "Dinov2WithRegisters", "2023-09"),
    "dinov3_vit": ("vit", "DINOv3ViT", "2025-08"),
    "internvl_vision": ("vit", "InternVLVision", "2025-04"),
    "audio-spectrogram-transformer": ("vit", "AST", "2021-04"),
    "qwen2_vl_vision": ("qwen_vision", "Qwen2VisionTransformerPretrained", "2024-09"),
    "qwen2_5_vl_vision": ("qwen_vision", "Qwen2_5_VisionTransformerPretrained", "2025-01"),
    "qwen2_5_omni_vision_encoder": ("qwen_vision", "Qwen2_5OmniVision", "2025-03"),
    "qwen3_vl_vision": ("qwen_vision", "Qwen3VLVision", "2025-09"),
    "qwen3_vl_moe_vision": ("qwen_vision", "Qwen3VLMoeVision", "2025-09"),
    "qwen3_omni_moe_vision_encoder": ("qwen_vision", "Qwen3OmniMoeVision", "2025-09"),
    "qwen3_5_vision": ("qwen_vision", "Qwen3_5Vision", "2026-02"),
    "qwen3_5_moe_vision": ("qwen_vision", "Qwen3_5MoeVision", "2026-02"),
    "glm4v_vision": ("qwen_vision", "Glm4vVision", "2025-07"),
    "glm4v_moe_vision": ("qwen_vision", "Glm4vMoeVision", "2025-08"),
    "glm_ocr_vision": ("qwen_vision", "GlmOcrVision", "2026-01"),
    "exaone4_5_vision": ("qwen_vision", "Exaone4_5_Vision", "2026-04"),
    "ernie4_5_vl_moe_vision": ("qwen_vision", "Ernie4_5_VLMoeVisionTransformerPretrained", "2025-06"),
    "kimi_k25_vision": ("vision", "Kimi_K25Vision", "2026-01"),
    "minimax_m3_vl_vision": ("vision", "MiniMaxM3VLVision", "2026-06"),
    "gemma4_vision": ("vision", "Gemma4Vision", "2026-04"),
    "llama4_vision_model": ("vision", "Llama4Vision", "2025-04"),
    "pixtral": ("vision", "PixtralVision", "2024-09"),
    "voxtral_encoder": ("audio", "VoxtralEncoder", "2025-07"),
    "qwen2_audio_encoder": ("audio", "Qwen2AudioEncoder", "2024-07"),
    "audioflamingo3_encoder": ("audio", "AudioFlamingo3Encoder", "2025-07"),
    "qwen2_5_omni_audio_encoder": ("audio", "Qwen2_5OmniAudio", "2025-03"),
    "zaya": ("rare.zaya", "Zaya", "2025-11"),
    "mobilebert": ("rare.mobilebert", "MobileBert", "2020-04"),
    "xlnet": ("rare.xlnet", "XLNet", "2019-06"),
    "rwkv": ("rare.rwkv", "Rwkv", "2023-05"),
    "recurrent_gemma": ("rare.recurrent_gemma", "RecurrentGemma", "2024-04"),
    "zamba": ("rare.zamba", "Zamba", "2024-05"),
    "longformer": ("rare.longformer", "Longformer", "2020-04"),
    "led": ("rare.led", "LED", "2020-04"),
    "jetmoe": ("rare.jetmoe", "JetMoe", "2024-04"),
    "diffllama": ("rare.diffllama", "DiffLlama", "2024-10"),
    "nvembed": ("rare.nvembed", "NVEmbed", "2024-05"),
    "t5gemma2": ("rare.t5gemma2", "T5Gemma2", "2025-12"),
    "roc_bert": ("rare.roc_bert", "RoCBert", "2022-05"),
    "layoutlm": ("rare.layoutlm", "LayoutLM", "2019-12"),
    "ernie": ("rare.ernie", "Ernie", "2019-04"),
    "roformer": ("rare.roformer", "RoFormer", "2021-04"),
    "big_bird": ("rare.big_bird", "BigBird", "2020-07"),
}


@cache
def names() -> list[str]:
    """Every known `model_type`."""
    return sorted([*FAMILIES, CUSTOM])


@cache
def config_class(model_type: str) -> type[FamilyConfig]:
    """The config of one family."""
    if model_type == CUSTOM:
        from tfacct.families.custom import Config

        return Config
    from tfacct.families.family import build

    module, name, _ = FAMILIES[model_type]
    return build(getattr(import_module(f"tfacct.families.{module}"), name))


def that_read(field: str) -> Iterator[str]:
    """The families that declare a field of the config, in the order of the registry."""
    for model_type, (module, name, _) in FAMILIES.items():
        family = getattr(import_module(f"tfacct.families.{module}"), name)
        declares = any(field in vars(base).get("__annotations__", {}) for base in family.__mro__)
        if declares and field in config_class(model_type).model_fields:
            yield model_type


def released(model_type: str) -> str:
    """The month in which a family's first model was released, as `2024-02`; empty for custom models."""
    return FAMILIES[model_type][2] if model_type in FAMILIES else ""


def newest_first(model_types: Iterable[str]) -> list[str]:
    """Families by month of release, then by name."""
    return sorted(sorted(model_types), key=released, reverse=True)


def class_names(family: type[FamilyConfig]) -> list[str]:
    """Supported classes, by their first name."""
    heads = list(family.task_heads.items())
    first = [ending for i, (ending, head) in enumerate(heads) if head not in [other for _, other in heads[:i]]]
    return [f"{family.class_prefixes[0]}{ending}" for ending in first]
