"""Parts of a model of several models: the encoder of its images, and both encoders of a pair.

Which class a whole builds for its images was asked of each in transformers 5.23; fields that its config leaves out are
the encoder's own class's.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfacct.base.complaints import format_value
from tfacct.base.errors import ConfigError
from tfacct.families import _classes as classes
from tfacct.families.registry import Part, names

FIELDS: Mapping[Part, str] = {"text": "text_config", "vision": "vision_config", "audio": "audio_config"}
TOWERS = (
    "clip_vision_model",
    "siglip_vision_model",
    "siglip2_vision_model",
    "pixtral",
    "idefics2_vision",
    "idefics3_vision",
    "smolvlm_vision",
    "internvl_vision",
    "kimi_k25_vision",
    "llama4_vision_model",
    "minimax_m3_vl_vision",
    "phi4_multimodal_vision",
    "qwen2_vl_vision",
    "qwen2_5_vl_vision",
    "ernie4_5_vl_moe_vision",
    "exaone4_5_vision",
    "gemma4_vision",
    "glm4v_vision",
    "glm4v_moe_vision",
    "glm_ocr_vision",
    "qwen2_5_omni_vision_encoder",
    "qwen3_vl_vision",
    "qwen3_vl_moe_vision",
    "qwen3_omni_moe_vision_encoder",
    "qwen3_5_vision",
    "qwen3_5_moe_vision",
)
"""Encoders of images that are counted in a whole."""


class Vision(NamedTuple):
    """The encoder of a whole's images: its type where the config does not say, and the module between it and the
    language model, where that is none of the encoder's own. `alone`: the whole builds no other."""

    tower: str
    between: str | None = "multi_modal_projector"
    alone: bool = False


CLIP, SIGLIP, SIGLIP_2, PIXTRAL = map(Vision, TOWERS[:4])
VISIONS: Mapping[str, Vision] = {
    "aya_vision": SIGLIP,
    "cohere2_vision": SIGLIP,
    "deepseek_vl": SIGLIP._replace(between="aligner"),
    "embedding_gemma2": Vision("gemma4_vision", "embed_vision", alone=True),
    "ernie4_5_vl_moe": Vision("ernie4_5_vl_moe_vision", "resampler_model", alone=True),
    "exaone4_5": Vision("exaone4_5_vision", None, alone=True),
    "gemma3": SIGLIP,
    "gemma4": Vision("gemma4_vision", "embed_vision", alone=True),
    "glm46v": Vision("glm4v_vision", None),
    "glm4v": Vision("glm4v_vision", None, alone=True),
    "glm4v_moe": Vision("glm4v_moe_vision", None, alone=True),
    "glm_ocr": Vision("glm_ocr_vision", None, alone=True),
    "glmga": Vision("glm4v_vision", None),
    "hyperclovax_vision_v2": Vision("qwen2_5_vl_vision", "projector", alone=True),
    "idefics2": Vision("idefics2_vision", "connector", alone=True),
    "idefics3": Vision("idefics3_vision", "connector", alone=True),
    "internvl": Vision("internvl_vision", alone=True),
    "kimi_k25": Vision("kimi_k25_vision", "mm_projector", alone=True),
    "lfm2_vl": SIGLIP_2,
    "lighton_ocr": PIXTRAL._replace(between="vision_projection"),
    "llama4": Vision("llama4_vision_model", alone=True),
    "llava": CLIP,
    "llava_next": CLIP,
    "llava_next_video": CLIP,
    "llava_onevision": SIGLIP,
    "minimax_m3_vl": Vision("minimax_m3_vl_vision", alone=True),
    "mistral3": PIXTRAL,
    "mistral_large4": PIXTRAL,
    "paligemma": SIGLIP,
    "phi4_multimodal": Vision("phi4_multimodal_vision", "img_projection_up", alone=True),
    "qwen2_5_omni_thinker": Vision("qwen2_5_omni_vision_encoder", None, alone=True),
    "qwen2_5_vl": Vision("qwen2_5_vl_vision", None, alone=True),
    "qwen2_vl": Vision("qwen2_vl_vision", None, alone=True),
    "qwen3_5": Vision("qwen3_5_vision", None, alone=True),
    "qwen3_5_moe": Vision("qwen3_5_moe_vision", None, alone=True),
    "qwen3_omni_moe_thinker": Vision("qwen3_omni_moe_vision_encoder", None, alone=True),
    "qwen3_vl": Vision("qwen3_vl_vision", None, alone=True),
    "qwen3_vl_moe": Vision("qwen3_vl_moe_vision", None, alone=True),
    "smolvlm": Vision("smolvlm_vision", "connector", alone=True),
    "t5gemma2": SIGLIP,
    "vipllava": CLIP,
}
"""By the `model_type` of the whole."""


SILENT = frozenset(("embedding_gemma2", "gemma4"))
"""Wholes whose class builds no encoder where the config has none; all others build one of default sizes."""

AUDIOS: Mapping[str, Vision] = {
    "audioflamingo3": Vision("audioflamingo3_encoder", alone=True),
    "musicflamingo": Vision("audioflamingo3_encoder", alone=True),
    "qwen2_5_omni_thinker": Vision("qwen2_5_omni_audio_encoder", None, alone=True),
    "qwen2_audio": Vision("qwen2_audio_encoder", alone=True),
    "voxtral": Vision("voxtral_encoder", alone=True),
}
"""The same of a whole's audio."""


MODULES: Mapping[str, str] = {
    **dict.fromkeys(
        ("deepseek_vl", "hyperclovax_vision_v2", "idefics2", "idefics3", "llama4", "smolvlm"), "vision_model"
    ),
    "lighton_ocr": "vision_encoder",
}
"""Modules of a class's image encoder, by the `model_type` of the whole, where that is no `vision_tower`."""
SPREAD = frozenset(("phi4_multimodal", "t5gemma2"))
"""Classes whose encoder, or whose projector, is in several modules or in one of another model."""


def modules_of(model_type: object, part: Part) -> tuple[str, str | None] | None:
    """Modules of the encoder and of the projector in the class of a whole; None where they are not described."""
    row = (AUDIOS if part == "audio" else VISIONS).get(str(model_type))
    if row is None or model_type in SPREAD:
        return None
    usual = "audio_tower" if part == "audio" else "visual" if row.between is None else "vision_tower"
    return MODULES.get(str(model_type), usual) if part == "vision" else usual, row.between


_CONFORMER = "its blocks have convolutions beside attention, and no part here has those"
_IN_CHUNKS = "its blocks have convolutions beside attention in chunks, and no part here has those"
_BOTH_WAYS = "its convolutions run over frames and over their bins, and no part here has those"
UNCOUNTED: Mapping[tuple[str, Part], str] = {
    ("fast_vlm", "vision"): "it is made of convolutions over neighbouring pixels, and no part here has those",
    ("gemma3n", "audio"): _IN_CHUNKS,
    ("gemma3n", "vision"): "it is a MobileNet, convolutions over neighbouring pixels, and no part here has those",
    ("gemma4", "audio"): _IN_CHUNKS,
    ("embedding_gemma2", "audio"): _IN_CHUNKS,
    ("granite_speech", "audio"): _CONFORMER,
    ("granite_speech_plus", "audio"): _CONFORMER,
    ("phi4_multimodal", "audio"): _CONFORMER,
    ("phi4mm", "audio"): _CONFORMER,
    ("qwen3_asr", "audio"): _BOTH_WAYS,
    ("qwen3_omni_moe_thinker", "audio"): _BOTH_WAYS,
}
"""Encoders that were looked at and are no family, and why."""


class Pair(NamedTuple):
    """Two encoders beside each other: how their classes begin and end, and what belongs to neither. `projected`: width
    of their vectors where the whole does not say it."""

    stem: str
    ending: str
    between: tuple[str, ...]
    projected: int = 512


PAIRS: Mapping[str, Pair] = {
    "altclip": Pair("AltCLIP", "ModelWithProjection", ("logit_scale",), projected=768),
    "chinese_clip": Pair("ChineseCLIP", "ModelWithProjection", ("logit_scale",)),
    "clip": Pair("CLIP", "ModelWithProjection", ("logit_scale",)),
    "metaclip_2": Pair("MetaClip2", "ModelWithProjection", ("logit_scale",)),
    "siglip": Pair("Siglip", "Model", ("logit_scale", "logit_bias")),
    "siglip2": Pair("Siglip2", "Model", ("logit_scale", "logit_bias")),
}
ENCODERS: Mapping[Part, Mapping[str, Any]] = {"vision": {**VISIONS, **PAIRS}, "audio": AUDIOS}
"""Wholes whose encoders are counted, by what those read."""


def encoders(raw: Mapping[str, Any], model_type: str) -> tuple[Part, ...]:
    """Encoders whose configs a whole holds, if they are counted; where none is, the one that it was made for."""
    there: list[Part] = [part for part, towers in ENCODERS.items() if FIELDS[part] in raw and model_type in towers]
    hears = FIELDS["vision"] not in raw and (FIELDS["audio"] in raw or model_type in AUDIOS.keys() - VISIONS.keys())
    return tuple(there) or ("audio" if hears else "vision",)


def part_of(raw: Mapping[str, Any], model_type: str, part: Part) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of one encoder, and what is not counted beside it. Raises ConfigError."""
    pair = PAIRS.get(model_type) if part != "audio" else None
    towers = AUDIOS if part == "audio" else VISIONS
    if pair is None and model_type not in towers:
        known = ENCODERS["audio" if part == "audio" else "vision"]
        if FIELDS[part] not in raw and (model_type, part) not in UNCOUNTED:
            raise ConfigError(f"the config of {model_type!r} has no {FIELDS[part]}: no {part} model of it is counted")
        why = f": {UNCOUNTED[model_type, part]}" if (model_type, part) in UNCOUNTED else ""
        raise ConfigError(f"the {part} model in {model_type!r} is not counted{why}", f"counted in {', '.join(known)}")
    own = FIELDS[part]
    inside = (raw.get(f"{own}_dict") if pair else None) or raw.get(own)
    if inside is None and pair is None:
        without = f"the config of {model_type!r} has no {own}"
        if raw.get("mm_vision_tower") is not None:  # in LLaVA's own files, which are of another class
            raise ConfigError(f"{without}: no {part} model of it is counted")
        if model_type in SILENT:
            raise ConfigError(f"{without}, and without one its class builds no {part} model")
        raise ConfigError(
            f"{without}: the {part} model that its class builds by default is not counted", f"write {own} into the file"
        )
    if not isinstance(inside, Mapping):
        raise ConfigError(f"model_type {model_type!r} keeps its {part} model in {own}, which is missing")
    expected = f"{model_type}_{part}_model" if pair else towers[model_type].tower
    family = inside.get("model_type") or expected  # Kimi-K2.5's files have none
    if family == expected.removesuffix("_vision"):
        family = expected  # as older files have it
    alone = pair is not None or towers[model_type].alone
    if family not in ((expected,) if alone else TOWERS) or family not in names():
        raise ConfigError(
            f"the {part} model in {model_type!r} is of model_type {format_value(family)}, which is not counted"
        )
    stored = {field: raw[field] for field in ("quantization_config", "compression_config") if raw.get(field)}
    fields = {**inside, **stored, "model_type": family, "architectures": None}
    there = (name for name, value in raw.items() if name.endswith("_config") and value is not None)
    others = tuple(name for name in there if name not in (own, *stored))
    if pair is None:  # some files hold the language model's fields among those of the whole
        between = towers[model_type].between
        return fields, (*dict.fromkeys((FIELDS["text"], *others)), *([between] if between else []))
    named = classes.named(raw.get("architectures"))
    if any(name != f"{pair.stem}Model" for name in named):
        raise ConfigError(
            f"architectures = {format_value(named)} names no class of {model_type}: it is {pair.stem}Model"
        )
    if pair.ending == "ModelWithProjection":
        fields["projection_dim"] = raw.get("projection_dim", pair.projected)
    fields["architectures"] = [f"{pair.stem}{part.capitalize()}{pair.ending}"]
    return fields, (*others, *pair.between)
