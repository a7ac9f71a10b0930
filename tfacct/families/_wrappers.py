"""Models of several models: which of their configs is the language model's, and what its class takes from the whole.

A vision tower or an audio encoder hands its results in as rows of tokens, so the language model is its own family's.
Whether the head is tied differs from class to class, and was asked of each in transformers 5.23.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from tfacct.base.complaints import format_value
from tfacct.base.errors import ConfigError
from tfacct.families import _classes as classes
from tfacct.families import _deepseek_vl
from tfacct.families._parts import ENCODERS, PAIRS, SILENT, UNCOUNTED, encoders, part_of
from tfacct.families._parts import FIELDS as ENCODER_FIELDS
from tfacct.families._spelled_types import SPELLED
from tfacct.families._texts import TEXTS, Text
from tfacct.families.family_config import value_of_null
from tfacct.families.fields import divide_exactly
from tfacct.families.known_fields import NO_NULLS, changes_counts, check_nulls
from tfacct.families.registry import Part, config_class, names

FIELDS = ("text_config", "llm_config", "language_config")
"""Fields that hold the language model's config. The classes of transformers have the first."""
TIED = "tie_word_embeddings"
DROP = "drop it from the file"  # what is set on the command line is set over the language model's fields, read by then


class Wrapper(NamedTuple):
    """A class of several models. `text`: type of its language model where the config does not say.

    `ties`: what says whether the head is tied. The `whole` config, else `default`; `either`, that or its language
    model; its language model's `own` config alone; or `never`. `filled`: fields that it writes into a text_config which
    leaves them out; `null_means`: those that it writes in place of null too. `flat`: published configs hold the
    language model's fields among those of the whole. `asks`: it builds any language model of its kind, by the type that
    the config says. `head`: sizes of an untied head, which it reads in the whole, with its class's defaults. `older`:
    the field that held the language model's config in files of before. `named`: its class, where that is not named
    after its type. `beside`: what it has beside the language model and has no config.
    """

    text: str
    ties: Literal["whole", "either", "own", "never"] = "whole"
    default: bool = False
    filled: Mapping[str, Any] = {}
    null_means: Mapping[str, Any] = {}
    flat: bool = False
    asks: bool = False
    head: Mapping[str, int] = {}
    older: str = "text_config"
    named: str = ""
    beside: tuple[str, ...] = ()


_VOXTRAL = {
    "vocab_size": 131072,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 30,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "head_dim": 128,
}
_GLMASR = {
    "vocab_size": 59264,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
}
WRAPPERS: Mapping[str, Wrapper] = {
    **dict.fromkeys(("Keye", "KeyeVL1_5"), Wrapper("qwen3", flat=True)),
    "aria": Wrapper("aria_text"),
    "aya_vision": Wrapper("cohere2", default=True),
    "audioflamingo3": Wrapper("qwen2", "never"),
    "blip-2": Wrapper("opt", "own"),
    "chameleon": Wrapper("chameleon_text", flat=True),
    "cohere2_vision": Wrapper("cohere2", default=True),
    "cohere_compass": Wrapper("cohere_compass_text"),
    "cosmos3_omni": Wrapper("qwen3_vl_text", asks=True),
    "deepseek_vl": Wrapper("llama", default=True),
    "deepseek_vl_hybrid": Wrapper("llama", default=True),
    "dots3_note": Wrapper("dots3_note_text", flat=True),
    "dots_ocr": Wrapper("qwen2", flat=True, named="DotsOCRForCausalLM"),
    "embedding_gemma2": Wrapper("embedding_gemma2_text", named="EmbeddingGemma2Model"),
    "emu3": Wrapper("emu3_text_model"),
    "ernie4_5_vl_moe": Wrapper("ernie4_5_vl_moe_text", default=True, named="Ernie4_5_VLMoeForConditionalGeneration"),
    "exaone4_5": Wrapper("exaone4"),
    "fast_vlm": Wrapper("qwen2", "either"),
    "fun_asr_nano": Wrapper("qwen3", default=True),
    "fuyu": Wrapper("persimmon", named="FuyuForCausalLM", beside=("vision_embed_tokens",)),
    "gemma3": Wrapper("gemma3_text", default=True),
    "gemma3n": Wrapper("gemma3n_text", default=True),
    "gemma4": Wrapper("gemma4_text", default=True),
    "gemma4_unified": Wrapper("gemma4_unified_text", default=True),
    "glm46v": Wrapper("glm4v_text", asks=True),
    "glm4v": Wrapper("glm4v_text", "either"),
    "glm5_next": Wrapper("glm5_next_text", flat=True),
    "glm4v_moe": Wrapper("glm4v_moe_text", "either"),
    "glm_ocr": Wrapper("glm_ocr_text", "either"),
    "glmga": Wrapper("glm4v_text", asks=True, named="Glm46VForConditionalGeneration"),
    "glmasr": Wrapper("llama", default=True, filled=_GLMASR),
    "got_ocr2": Wrapper("qwen2", default=True),
    "granite4_vision": Wrapper("granite4_vision_text"),
    "granite_docling": Wrapper("granite_docling_text", default=True),
    **dict.fromkeys(("granite_speech", "granite_speech_plus"), Wrapper("granite", default=True)),
    "hunyuan_vl": Wrapper("hunyuan_vl_text", "either", default=True, flat=True),
    "hyperclovax_vision_v2": Wrapper("hyperclovax", default=True),
    "idefics2": Wrapper("mistral"),
    "idefics3": Wrapper("llama"),
    **dict.fromkeys(("instructblip", "instructblipvideo"), Wrapper("opt", "own")),
    "internvl": Wrapper("qwen2", default=True),
    "janus": Wrapper("llama", default=True),
    "kimi_k25": Wrapper("deepseek_v3", default=True, flat=True),
    "kimi_vl": Wrapper("deepseek_v3"),
    "lfm2_vl": Wrapper("lfm2", default=True),
    "lighton_ocr": Wrapper("qwen3", default=True),
    "llama4": Wrapper("llama4_text", "own"),
    "llava": Wrapper("llama", "either"),
    "llava_next": Wrapper("llama"),
    "llava_next_video": Wrapper("llama", "either"),
    "llava_onevision": Wrapper("qwen2", "either"),
    "minicpm_ocr": Wrapper("qwen3_5_text", default=True),
    **dict.fromkeys(("minicpmv4_6", "minicpmv4_7"), Wrapper("qwen3_5_text")),
    "minimax_m3_vl": Wrapper("minimax_m3_vl_text", "either"),
    "mistral3": Wrapper("mistral", default=True),
    "mistral_large4": Wrapper("mistral_large4_text"),
    "modernvbert": Wrapper("modernbert", named="ModernVBertForMaskedLM"),
    "moss_transcribe_diarize": Wrapper("qwen3", default=True),
    "mllama": Wrapper("mllama_text_model", "never"),
    "muse_glimmer": Wrapper("muse_glimmer_text"),
    "muse_spark": Wrapper("muse_spark_text", "never"),
    "musicflamingo": Wrapper("qwen2", "never"),
    "nemotron_h_omni": Wrapper("nemotron_h", "own", older="llm_config", named="NemotronH_Omni_Reasoning_V3"),
    "ovis2": Wrapper("qwen2", default=True, head={"hidden_size": 1536, "vocab_size": 151643}),
    "paddleocr_vl": Wrapper("paddleocr_vl_text", "either", default=True, flat=True),
    "paligemma": Wrapper("gemma", default=True, null_means={"use_bidirectional_attention": True}),
    "phi3_v": Wrapper("phi3", flat=True, named="Phi3VForCausalLM"),
    "phi4_multimodal": Wrapper("phi4_multimodal_text", flat=True, named="Phi4MultimodalForCausalLM"),
    "phi4mm": Wrapper("phi4_multimodal_text", flat=True, named="Phi4MMForCausalLM"),
    "pp_chart2table": Wrapper("qwen2", default=True, named="GotOcr2ForConditionalGeneration"),
    "qianfan_ocr": Wrapper("qwen3"),
    "qwen2_5_omni_thinker": Wrapper("qwen2_5_omni_text"),
    "qwen2_5_vl": Wrapper("qwen2_5_vl_text", "either", flat=True),
    "qwen2_audio": Wrapper("qwen2", "never"),
    "qwen2_vl": Wrapper("qwen2_vl_text", "either", flat=True),
    "qwen3_5": Wrapper("qwen3_5_text"),
    "qwen3_5_moe": Wrapper("qwen3_5_moe_text"),
    "qwen3_asr": Wrapper("qwen3", default=True),
    "qwen3_omni_moe_thinker": Wrapper("qwen3_omni_moe_text"),
    "qwen3_vl": Wrapper("qwen3_vl_text"),
    "qwen3_vl_moe": Wrapper("qwen3_vl_moe_text"),
    "smolvlm": Wrapper("llama"),
    "step3p7": Wrapper("step3p5", flat=True),
    "vibevoice": Wrapper("qwen2", "own", older="decoder_config"),
    "vibevoice_asr": Wrapper("qwen2", "never"),
    "video_llama_3": Wrapper("qwen2", "either"),
    "video_llava": Wrapper("llama"),
    "vipllava": Wrapper("llama"),
    "voxtral": Wrapper("llama", "never", filled=_VOXTRAL),
}
"""By the `model_type` of the whole."""

SAYS: Mapping[str, Literal["whole", "text"]] = {"lfm3_vl": "whole", "shieldgemma2": "text"}
"""Further wholes: which of their configs says whether the head is tied; of any others one is enough."""

OUTER: Mapping[str, str] = {"qwen2_5_omni": "thinker_config", "qwen3_omni_moe": "thinker_config"}
"""Wholes that speak, by their `model_type`: the field that holds the one that answers, with its own language model."""


def parts_of(raw: Mapping[str, Any]) -> tuple[Part, ...]:
    """Parts of a config of several models that are counted together: the language model, and each encoder that is
    there."""
    return ("text", *encoders(*_answering(raw)))


def built_by_default(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields that a config of several models lacks, and by which its class builds an encoder of default sizes."""
    raw, whole = _answering(raw)
    if whole in SILENT or whole in PAIRS:
        return ()
    there = {part for part, row in ENCODERS.items() if whole in row or (whole, part) in UNCOUNTED}
    return tuple(field for part, field in ENCODER_FIELDS.items() if part in there and raw.get(field) is None)


def _answering(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The config of the model that answers, in one of those that speak too, and its type; any other as it is."""
    whole = str(raw.get("model_type"))
    if whole in OUTER and isinstance(raw.get(OUTER[whole]), Mapping):
        return raw[OUTER[whole]], f"{whole}_thinker"
    return raw, whole


class Unwrapped(NamedTuple):
    """The language model's fields, the fields of the whole that hold the other models' configs, and what was defaulted
    on the way."""

    fields: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    defaulted: Mapping[str, Any] = {}


def unwrapped(raw: Mapping[str, Any], part: Part = "text") -> Unwrapped:
    """The language model in a config of several, or another part; any other config as it is. Raises ConfigError."""
    model_type = raw.get("model_type")
    if not isinstance(model_type, str):
        return Unwrapped(raw)
    if model_type in OUTER:
        return _inner(raw, OUTER[model_type], part)
    if part != "text" or model_type in PAIRS:
        return Unwrapped(*part_of(raw, model_type, part))
    if model_type.startswith("llava") and not any(isinstance(raw.get(name), Mapping) for name in FIELDS):
        found = _flat_llava(raw)
        if found is not None:
            return found
    if (wrapper := WRAPPERS.get(model_type)) is not None:
        return _known(raw, model_type, wrapper)
    if model_type in TEXTS or model_type == "chatglm":  # GLM-4V's, too
        return _inside(raw, model_type, {}, ())
    if model_type == _deepseek_vl.TYPE:
        raw = _deepseek_vl.told(raw)
    field = next((name for name in FIELDS if isinstance(raw.get(name), Mapping)), None)
    return Unwrapped(raw) if field is None else _unknown(raw, model_type, field)


LLAVA: Mapping[str, str] = {
    "LlavaLlamaForCausalLM": "llama",
    "LlavaMistralForCausalLM": "mistral",
    "LlavaQwenForCausalLM": "qwen2",
}
"""Classes in LLaVA's own files → the family whose fields stand there beside those of what sees, and which say …"""
SEES = ("mm_", "image_", "tune_mm_", "freeze_mm_", "unfreeze_mm_", "use_mm_", "vision_tower_")
"""… how they begin."""


def _flat_llava(raw: Mapping[str, Any]) -> Unwrapped | None:
    """The language model in one of LLaVA's own files; None where it is none."""
    named = classes.named(raw.get("architectures"))
    if len(named) != 1 or named[0] not in LLAVA:
        return None
    fields = {name: value for name, value in raw.items() if not name.startswith(SEES)}
    towers = ("mm_vision_tower", "mm_projector_type")
    left_out = tuple(name for name in towers if raw.get(name) is not None) or (named[0].removesuffix("ForCausalLM"),)
    return Unwrapped({**fields, "model_type": LLAVA[named[0]], "architectures": None}, left_out)


def _inner(raw: Mapping[str, Any], field: str, part: Part) -> Unwrapped:
    """A part of the whole that answers, in a config of that one and of those that speak."""
    inside = raw.get(field)
    if not isinstance(inside, Mapping):
        raise ConfigError(f"model_type {raw['model_type']!r} keeps what answers in {field}, which is missing")
    # Published files name the class of the whole there, by a name of before.
    found = unwrapped({**inside, "model_type": f"{raw['model_type']}_thinker", "architectures": None}, part)
    others = tuple(name for name, value in raw.items() if of_another(name, value) and name != field)
    return found._replace(left_out=(*found.left_out, *others))


def _known(raw: Mapping[str, Any], model_type: str, wrapper: Wrapper) -> Unwrapped:
    """The language model of a class that was asked."""
    field = "text_config" if raw.get("text_config") is not None else wrapper.older
    inside = raw.get(field)
    if inside is None and wrapper.flat:
        inside = {name: value for name, value in raw.items() if name not in ("model_type", "architectures", TIED)}
    if not isinstance(inside, Mapping):
        raise ConfigError(f"model_type {model_type!r} keeps its language model in text_config, which is missing")
    text = inside.get("model_type", wrapper.text)
    fixed = wrapper.text in TEXTS or wrapper.text.startswith(model_type)  # whose class reads no type
    if text is None and (wrapper.asks or not fixed):
        raise ConfigError(f"model_type must be text, not null, in the text_config of {model_type!r}")
    text = wrapper.text if text is None else str(text)
    if wrapper.text in TEXTS and not wrapper.asks:
        text = wrapper.text  # whose class does not ask for the type
    family = TEXTS[text].family if text in TEXTS else text
    if text in TEXTS and TIED in TEXTS[text].nulls and inside.get(TIED, True) is None:
        inside = {**inside, TIED: TEXTS[text].nulls[TIED]}
    for config in (raw, inside):
        if config.get(TIED, False) is None:
            raise ConfigError(f"{TIED} must be true or false, not null", "without it, the class's default counts")
    of_text = inside.get(TIED)
    if of_text is None and text in names():
        of_text = config_class(text).model_fields[TIED].default if TIED in config_class(text).model_fields else False
    if of_text is None and text in TEXTS:
        of_text = TEXTS[text].tied
    whole = raw.get(TIED)
    tied = {
        "whole": wrapper.default if whole is None else whole,
        "either": (wrapper.default if whole is None else whole) or of_text or False,
        "own": of_text,
        "never": False,
    }[wrapper.ties]
    if not tied:
        _check_head(raw, inside, wrapper.head)
    said = wrapper.ties == "never" or whole is not None or (inside.get(TIED) is not None and wrapper.ties != "whole")
    filled = {name: value for name, value in wrapper.filled.items() if name not in inside}
    filled |= {name: value for name, value in wrapper.null_means.items() if inside.get(name) is None}
    writes = wrapper.named or f"{model_type}ForConditionalGeneration"
    heads = {"architectures": _class_of_whole(raw.get("architectures"), writes)}
    if family not in names():
        raise ConfigError(
            f"the language model in {model_type!r} is of an unknown model_type {format_value(family)}",
            f"{len(names())} are known: docs/models.md and `tfacct models` list them",
        )
    found = _inside({**inside, **filled, **heads, TIED: tied}, text, raw, (field,))
    defaulted = {**found.defaulted, **filled, **({} if said else {TIED: tied})}
    return found._replace(left_out=(*found.left_out, *wrapper.beside), defaulted=defaulted)


def _check_head(raw: Mapping[str, Any], inside: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Refuse an untied head that the whole makes of other sizes than the language model's. Raises ConfigError."""
    for name, default in sizes.items():
        of_head = raw.get(name, default)
        if of_head != inside.get(name):
            absent = "" if name in raw else " (its default)"
            raise ConfigError(
                f"{name} = {format_value(of_head)} of {raw['model_type']!r}{absent}, of which its head is made,"
                " contradicts"
                f" {format_value(inside.get(name))} in its text_config"
            )


def _class_of_whole(named: Any, writes: str) -> Any:
    """What the whole's class says of the head. One that writes text has the language model's, which needs no word."""
    writes = writes.replace("_", "").replace("-", "").lower()
    if all(name.replace("_", "").lower() == writes for name in classes.named(named)):
        return None
    return named


def _inside(inside: Mapping[str, Any], text: str, whole: Mapping[str, Any], fields: Iterable[str]) -> Unwrapped:
    """The fields of a language model, with what its class takes where they are left out."""
    own = TEXTS.get(text, Text(text))
    check_nulls(inside, text)
    for name, value in own.fixed.items():
        if inside.get(name) is not None and inside[name] != value:
            raise ConfigError(
                f"{name} = {format_value(inside[name])} is not read by the class of {text}, which has"
                f" {format_value(value)}",
                DROP,
            )
    for name in own.unread:
        if inside.get(name) and changes_counts(name):
            _refuse_unread(name, inside, text)
    sizes = own.sizes if text in TEXTS else config_class(text).nested_defaults if text in names() else {}
    sizes = {**sizes, TIED: True} if own.tied else sizes
    aliases = config_class(own.family).attribute_map if own.family in names() else {}
    given = {aliases.get(name, name) for name in inside}
    absent = {name: value for name, value in sizes.items() if name not in given}
    nulls = [name for name in own.nulls if name in inside and inside[name] is None]
    absent |= {name: value_of_null(own.nulls[name], {**absent, **inside}) for name in nulls}
    if own.shares and inside.get("head_dim") is None:
        absent |= _shared_head({**absent, **inside})
    others = {name for name, value in whole.items() if of_another(name, value) and name not in fields}
    others |= {name for name, value in inside.items() if name in MODELS and of_another(name, value)}
    kept = {name: whole[name] for name in (*KEPT, "torch_dtype", "dtype") if name in whole}
    if "head_dim" in own.unread:  # its heads share the hidden size, whatever the family takes
        inside = {**inside, **_shared_head({**absent, **inside})}
    absent_nulls = {name for name in NO_NULLS if name in inside and inside[name] is None}  # to this class, see above
    own_fields = {
        name: value for name, value in inside.items() if name not in others | absent_nulls and not _of_tokens(name)
    }
    return Unwrapped(
        {**kept, **own_fields, **absent, **own.fixed, "model_type": own.family},
        tuple(name for name in dict.fromkeys((*whole, *inside)) if name in others),
        absent,
    )


def _shared_head(fields: Mapping[str, Any]) -> dict[str, int]:
    """The size of one head of those that share the hidden size. Raises ConfigError where that does not divide."""
    hidden, heads = (fields.get(name) for name in ("hidden_size", "num_attention_heads"))
    if isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        return {"head_dim": divide_exactly(hidden, heads, "hidden_size by num_attention_heads")}
    return {}  # which the family refuses


KEPT = ("quantization_config", "compression_config")
OTHERS = frozenset("embd_layer img_processor audio_processor vision_lora speech_lora multi_vector_projector".split())
"""Fields that hold what stands beside a language model, in files that keep the fields of both together."""
MODELS = ("vision_config", "audio_config", *OTHERS)
"""Fields that hold another model's config in that of a language model too: older files repeat them there."""


def of_another(name: str, value: Any) -> bool:
    """True for a field that holds another model's config; null says that there is none."""
    named = name in OTHERS or (name.endswith("_config") and name not in KEPT)
    return named and value is not None


def _of_tokens(name: str) -> bool:
    """True for a field that says which tokens stand for images, or how many: no count of the language model's."""
    stands = name.endswith(("_token_id", "_token_index")) and not name.startswith(("bos", "eos", "pad"))
    return stands or name == "num_image_tokens"


def _refuse_unread(name: str, inside: Mapping[str, Any], text: str) -> None:
    """Refuse a field that the class of this language model does not read, where it would change a count."""
    if name == "head_dim" and _shared_head(inside).get(name) == inside[name]:
        return
    layers = inside[name] if name == "layer_types" else None
    if isinstance(layers, list) and set(map(str, layers)) == {"full_attention"}:
        return
    raise ConfigError(f"{name} = {format_value(inside[name])} is not read by the class of {text}", DROP)


def _unknown(raw: Mapping[str, Any], model_type: str, field: str) -> Unwrapped:
    """The language model of a class that nobody here knows: as its own config says, with its own class."""
    inside: Mapping[str, Any] = raw[field]
    family = inside.get("model_type")
    if not isinstance(family, str) or (family not in names() and family not in SPELLED):
        return Unwrapped(raw)
    heads = config_class(SPELLED[family].family if family in SPELLED else family).task_heads.values()
    if not heads or next(iter(heads)).auto != "AutoModelForCausalLM":
        return Unwrapped(raw)
    for name in ("hidden_size", "vocab_size"):  # of which its class may make the head
        if name in raw and raw[name] != inside.get(name):
            raise ConfigError(
                f"{name} = {format_value(raw[name])} of {model_type!r} contradicts"
                f" {format_value(inside.get(name))} in its {field}"
            )
    said = {config[TIED] for config in (raw, inside) if config.get(TIED) is not None}
    reads = {"whole": raw, "text": inside}.get(SAYS.get(model_type, ""))
    if reads is not None and reads.get(TIED) is None:
        said = set()
    if len(said) != 1:
        unsure = "says both" if said else "does not say"
        raise ConfigError(
            f"the language model in {model_type!r} is a {family}, but the config {unsure} whether its head is tied",
            f"say it in {field}, and of the whole: {TIED}",
        )
    return _inside({**inside, TIED: said.pop()}, family, raw, (field,))
