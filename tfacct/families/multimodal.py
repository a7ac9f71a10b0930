"""Composite configs, with a text model and towers (encoders of images or audio).

A tower's output replaces token embeddings, so the text model is counted by its own family, and so is each tower.
`multimodal.toml` has one row per composite type.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tfacct.base.errors import ConfigError, ModelTypeError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.spelling import setting
from tfacct.families.family_config import FamilyConfig, value_of_null
from tfacct.families.fields import MOST_LAYERS, divide_exactly
from tfacct.families.known_fields import NO_NULLS, changes_counts, check_nulls
from tfacct.families.registry import CUSTOM, Part, Submodel, config_class, names
from tfacct.families.task_heads import listed_classes
from tfacct.families.type_aliases import type_aliases

TIED = "tie_word_embeddings"
TEXT_FIELDS = ("text_config", "llm_config", "language_config")
"""Fields with the text model's config. Classes of transformers have the first."""
STORAGE = ("quantization_config", "compression_config", "quantization")
"""Fields about the format of weights, for all models in a composite. MLX writes the last."""
OTHER_MODELS = frozenset(
    "embd_layer img_processor audio_processor vision_lora speech_lora multi_vector_projector".split()
)
"""Fields with other models next to the text model's fields."""
DROP = "remove it from the file"  # --set sets fields of the text model, after its config was read


class Tower(NamedTuple):
    """A composite's encoder of images or audio; `multimodal.toml` explains the keys."""

    type: str
    projector: str = "multi_modal_projector"
    any_type: bool = False
    module: str = ""
    spread: bool = False


class Composite(NamedTuple):
    """A composite type; `multimodal.toml` explains the keys."""

    text: str = ""
    tie: Literal["composite", "text", "either", "never"] = "composite"
    tie_default: bool = False
    fill: Mapping[str, Any] = {}
    fill_null: Mapping[str, Any] = {}
    flat: bool = False
    any_text: bool = False
    head: Mapping[str, int] = {}
    text_field: str = "text_config"
    class_name: str = ""
    extra: Sequence[str] = ()
    vision: Tower | None = None
    audio: Tower | None = None
    optional_towers: bool = False
    unsupported: Mapping[str, str] = {}


class TextModel(NamedTuple):
    """A type of text model that another family computes; `multimodal.toml` explains the keys."""

    family: str
    sizes: Mapping[str, Any] = {}
    unread: Sequence[str] = ()
    fixed: Mapping[str, Any] = {}
    tied: bool = False
    head_dim_shared: bool = False
    null_means: Mapping[str, Any] = {}


class DualEncoder(NamedTuple):
    """A text and an image encoder next to each other; `multimodal.toml` explains the keys."""

    prefix: str
    tower_class: str
    extra: Sequence[str]
    projection_dim: int = 512


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def composites() -> dict[str, Composite]:
    """Every composite type, in alphabetical order."""
    rows, reasons = _tables()["composite"], _tables()["reason"]
    found = {}
    for name, row in sorted(rows.items()):
        towers = {part: Tower(**row[part]) for part in ("vision", "audio") if part in row}
        unsupported = {part: reasons[reason] for part, reason in row.get("unsupported", {}).items()}
        found[name] = Composite(**{**row, **towers, "unsupported": unsupported})
    return found


@cache
def text_models() -> dict[str, TextModel]:
    """Types of text models that another family computes."""
    return {name: TextModel(**row) for name, row in _tables()["text_model"].items()}


@cache
def dual_encoders() -> dict[str, DualEncoder]:
    """Types that are a text and an image encoder."""
    return {name: DualEncoder(**row) for name, row in _tables()["dual_encoder"].items()}


@cache
def towers(part: Part) -> dict[str, Tower]:
    """Supported towers for images (`vision`) or audio, by composite type."""
    found = {name: row.audio if part == "audio" else row.vision for name, row in composites().items()}
    return {name: tower for name, tower in found.items() if tower is not None}


def _with_tower(part: Part) -> tuple[str, ...]:
    """Composite types whose tower of this kind is supported."""
    return (*towers(part), *(dual_encoders() if part == "vision" else ()))


def modules_of(model_type: object, part: Part) -> tuple[str, str] | None:
    """Modules of the tower and of the projector, "" without one, in the composite's class; None if they are not
    described."""
    tower = towers(part).get(str(model_type))
    if tower is None or tower.spread:
        return None
    usual = "audio_tower" if part == "audio" else "vision_tower" if tower.projector else "visual"
    return tower.module or usual, tower.projector


def tower_parts(raw: Mapping[str, Any], model_type: str) -> tuple[Part, ...]:
    """The supported towers in a composite config; if there are none, the tower of its type."""
    kinds: tuple[Part, ...] = ("vision", "audio")
    found = tuple(part for part in kinds if f"{part}_config" in raw and model_type in _with_tower(part))
    only_audio = model_type in towers("audio") and model_type not in towers("vision")
    hears = "vision_config" not in raw and ("audio_config" in raw or only_audio)
    return found or ("audio" if hears else "vision",)


def built_by_default(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Missing fields of a composite config for which its class builds towers of default sizes."""
    raw, model_type = _answering(raw)
    row = composites().get(model_type)
    if row is None or row.optional_towers:
        return ()
    there = {"vision": row.vision, "audio": row.audio}
    parts = [part for part, tower in there.items() if tower is not None or part in row.unsupported]
    return tuple(f"{part}_config" for part in parts if raw.get(f"{part}_config") is None)


def _answering(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The config of the text-generating composite in a speech model, and its type; any other config unchanged."""
    model_type = str(raw.get("model_type"))
    if model_type in _tables()["thinker"]["types"] and isinstance(raw.get("thinker_config"), Mapping):
        return raw["thinker_config"], f"{model_type}_thinker"
    return raw, model_type


def split(raw: Mapping[str, Any], part: Part) -> Submodel:
    """One model of a composite config; any other config unchanged. Raises ConfigError."""
    model_type = raw.get("model_type", CUSTOM)
    if model_type in names():
        if model_type in towers("vision"):
            return _of_sides(raw, model_type, part)._replace(parts=("text", "vision"))
        return Submodel(raw)
    raw = canonical(raw)
    found = _submodel(raw, part)
    if found.left_out:
        return found._replace(parts=("text", *tower_parts(*_answering(raw))))
    return found._replace(parts=("text",)) if str(model_type) in composites() else found  # without a tower's config


def _submodel(raw: Mapping[str, Any], part: Part) -> Submodel:
    """The text model, or a tower; any other config unchanged. Raises ConfigError."""
    model_type = raw.get("model_type")
    if not isinstance(model_type, str):
        return Submodel(raw)
    if model_type in _tables()["thinker"]["types"]:
        return _of_thinker(raw, part)
    if model_type in dual_encoders() and part != "audio":
        return _of_dual_encoder(raw, model_type, part)
    if part != "text":
        return _tower_fields(raw, model_type, part)
    if model_type.startswith("llava") and not any(isinstance(raw.get(name), Mapping) for name in TEXT_FIELDS):
        found = _flat_llava(raw)
        if found is not None:
            return found
    if (row := composites().get(model_type)) is not None:
        return _text_model(raw, model_type, row)
    if model_type in text_models() or model_type == "chatglm":  # GLM-4V's, too
        return _text_fields(raw, model_type, {}, ())
    if model_type == "deepseek_vl_v2":
        raw = _deepseek_vl(raw)
    field = next((name for name in TEXT_FIELDS if isinstance(raw.get(name), Mapping)), None)
    return Submodel(raw) if field is None else _unknown_composite(raw, model_type, field)


def _of_sides(raw: Mapping[str, Any], model_type: str, part: Part) -> Submodel:
    """An encoder-decoder without its encoder's tower, or that tower. Raises ConfigError."""
    inside: Mapping[str, Any] = raw["encoder"]
    if part != "text":
        storage = {name: raw[name] for name in STORAGE if name in raw}
        return _tower_fields({**storage, **inside, "model_type": model_type}, model_type, part)
    others = tuple(name for name, value in inside.items() if name != "text_config" and _other_model(name, value))
    projector = towers("vision")[model_type].projector
    fields = {**raw, "encoder": {name: value for name, value in inside.items() if name not in others}}
    return Submodel(fields, (*others, *([projector] if projector else [])))


def _of_thinker(raw: Mapping[str, Any], part: Part) -> Submodel:
    """A part of the text-generating composite in a speech model. Raises ConfigError."""
    inside = raw.get("thinker_config")
    if not isinstance(inside, Mapping):
        raise ConfigError(
            f"model_type {raw['model_type']!r} keeps its text-generating part in thinker_config, which is missing"
        )
    # Published files have an older name of its class there.
    fields = {**_of_weights(raw), **inside, "model_type": f"{raw['model_type']}_thinker", "architectures": None}
    found = _submodel(fields, part)
    others = tuple(name for name, value in raw.items() if _other_model(name, value) and name != "thinker_config")
    return found._replace(left_out=(*found.left_out, *others))


def _of_dual_encoder(raw: Mapping[str, Any], model_type: str, part: Part) -> Submodel:
    """One of two encoders. Raises ConfigError."""
    row, field = dual_encoders()[model_type], f"{part}_config"
    expected = f"{model_type}_{part}_model"
    inside = raw.get(f"{field}_dict") or raw.get(field)
    fields, others = _encoder_fields(raw, model_type, part, inside, expected, (expected,))
    named = listed_classes(raw.get("architectures"))
    if any(name != f"{row.prefix}Model" for name in named):
        raise ConfigError(
            f"architectures = {format_value(named)} is not a class of {model_type}; use {row.prefix}Model"
        )
    if row.tower_class == "ModelWithProjection":
        fields["projection_dim"] = raw.get("projection_dim", row.projection_dim)
    fields["architectures"] = [f"{row.prefix}{part.capitalize()}{row.tower_class}"]
    return Submodel(fields, (*others, *row.extra))


def _tower_fields(raw: Mapping[str, Any], model_type: str, part: Part) -> Submodel:
    """A tower. Raises ConfigError."""
    field, tower = f"{part}_config", towers(part).get(model_type)
    without = f"the config of {model_type!r} has no {field}"
    if tower is None:
        why = composites()[model_type].unsupported.get(part) if model_type in composites() else None
        if field not in raw and why is None:
            raise ConfigError(f"{without}, so it has no {part} part to count")
        problem = f"the {part} part of {model_type!r} is not supported{f': {why}' if why else ''}"
        raise ConfigError(problem, f"supported in {', '.join(_with_tower(part))}")
    if raw.get(field) is None:
        if raw.get("mm_vision_tower") is not None:  # in LLaVA's original files, which have another class
            raise ConfigError(f"{without}, so it has no {part} part to count")
        if composites()[model_type].optional_towers:
            raise ConfigError(f"{without}, so its class builds no {part} part")
        raise ConfigError(
            f"{without}: the default {part} part of its class is not supported", f"add {field} to the config"
        )
    allowed = [one.type for one in towers("vision").values()] if tower.any_type else (tower.type,)
    fields, others = _encoder_fields(raw, model_type, part, raw[field], tower.type, allowed)
    # Some files have the text model's fields at the top level.
    return Submodel(fields, (*dict.fromkeys(("text_config", *others)), *([tower.projector] if tower.projector else [])))


def _encoder_fields(
    raw: Mapping[str, Any], model_type: str, part: Part, inside: Any, expected: str, allowed: Iterable[str]
) -> tuple[dict[str, Any], list[str]]:
    """The fields of an encoder, and the fields with configs of other models. Raises ConfigError."""
    field = f"{part}_config"
    if not isinstance(inside, Mapping):
        raise ConfigError(f"model_type {model_type!r} keeps its {part} model in {field}, which is missing")
    family = inside.get("model_type") or expected  # Kimi-K2.5's files have none
    if family == expected.removesuffix("_vision"):
        family = expected  # as in older files
    if family not in allowed or family not in names():
        raise ConfigError(
            f"the {part} part of {model_type!r} has model_type {format_value(family)}, which is not supported"
        )
    storage = {name: raw[name] for name in STORAGE if raw.get(name)}
    present = (name for name, value in raw.items() if name.endswith("_config") and value is not None)
    others = [name for name in present if name not in (field, *storage)]
    return {**inside, **storage, "model_type": family, "architectures": None}, others


def _flat_llava(raw: Mapping[str, Any]) -> Submodel | None:
    """The text model in LLaVA's original files; None for other files. Raises ConfigError."""
    named, known = listed_classes(raw.get("architectures")), _tables()["llava"]
    if len(named) != 1 or named[0] not in known:
        return None
    of_images = ("mm_", "image_", "tune_mm_", "freeze_mm_", "unfreeze_mm_", "use_mm_", "vision_tower_")
    fields = {name: value for name, value in raw.items() if not name.startswith(of_images)}
    present = tuple(name for name in ("mm_vision_tower", "mm_projector_type") if raw.get(name) is not None)
    left_out = present or (named[0].removesuffix("ForCausalLM"),)
    return Submodel({**fields, "model_type": known[named[0]], "architectures": None}, left_out)


def _text_model(raw: Mapping[str, Any], model_type: str, row: Composite) -> Submodel:
    """The text model as the composite's class builds it. Raises ConfigError."""
    field = "text_config" if raw.get("text_config") is not None else row.text_field
    inside = raw.get(field)
    if inside is None and row.flat:
        inside = {name: value for name, value in raw.items() if name not in ("model_type", "architectures", TIED)}
    if not isinstance(inside, Mapping):
        raise ConfigError(f"model_type {model_type!r} keeps its language model in text_config, which is missing")
    text = inside.get("model_type", row.text)
    one_type = row.text in text_models()  # whose class reads no type
    if text is None and (row.any_text or not (one_type or row.text.startswith(model_type))):
        raise ConfigError(f"model_type must be text, not null, in the text_config of {model_type!r}")
    text = row.text if text is None or (one_type and not row.any_text) else str(text)
    other = text_models().get(text)
    if other is not None and TIED in other.null_means and inside.get(TIED, True) is None:
        inside = {**inside, TIED: other.null_means[TIED]}
    for config in (raw, inside):
        if config.get(TIED, False) is None:
            raise ConfigError(f"{TIED} must be true or false, not null", "without it, the class's default counts")
    tied = _tied(raw, inside, text, row)
    if not tied:
        _check_head(raw, inside, row.head)
    tie_given = raw.get(TIED) is not None or (inside.get(TIED) is not None and row.tie != "composite")
    filled = {name: value for name, value in row.fill.items() if name not in inside}
    filled |= {name: value for name, value in row.fill_null.items() if inside.get(name) is None}
    class_name = row.class_name or f"{model_type}ForConditionalGeneration"
    heads = {"architectures": _text_classes(raw.get("architectures"), class_name)}
    family = text if other is None else other.family
    if family not in names():
        raise ModelTypeError(
            f"the language model in {model_type!r} is of an unknown model_type {format_value(family)}",
            "`tfacct models` lists presets of known model types",
        )
    found = _text_fields({**inside, **filled, **heads, TIED: tied}, text, raw, (field,))
    defaulted = {**found.defaulted, **filled, **({} if tie_given or row.tie == "never" else {TIED: tied})}
    return found._replace(left_out=(*found.left_out, *row.extra), defaulted=defaulted)


def _tied(raw: Mapping[str, Any], inside: Mapping[str, Any], text: str, row: Composite) -> Any:
    """True if the head is tied: tie_word_embeddings of the config that the composite's class reads, or its default."""
    of_text, of_composite = inside.get(TIED), raw.get(TIED)
    if of_text is None and text in names():
        known = config_class(text).model_fields
        of_text = known[TIED].default if TIED in known else False
    if of_text is None and text in text_models():
        of_text = text_models()[text].tied
    if of_composite is None:
        of_composite = row.tie_default
    either = of_composite or of_text or False
    return {"composite": of_composite, "text": of_text, "either": either, "never": False}[row.tie]


def _check_head(raw: Mapping[str, Any], inside: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Raises ConfigError for an untied head whose sizes are not the text model's."""
    for name, default in sizes.items():
        of_head = raw.get(name, default)
        if of_head != inside.get(name):
            absent = "" if name in raw else " (class default)"
            raise ConfigError(
                f"{name} = {format_value(of_head)} of {raw['model_type']!r}{absent}, the size of its head,"
                f" contradicts {format_value(inside.get(name))} in its text_config"
            )


def _text_classes(named: Any, class_name: str) -> Any:
    """The classes in a composite config; None for its own class, which has the text model's usual head."""
    expected = class_name.replace("_", "").replace("-", "").lower()
    return None if all(name.replace("_", "").lower() == expected for name in listed_classes(named)) else named


def _text_fields(inside: Mapping[str, Any], text: str, raw: Mapping[str, Any], fields: Iterable[str]) -> Submodel:
    """The fields of a text model, with the defaults of its class for missing sizes. Raises ConfigError."""
    model, known = text_models().get(text, TextModel(text)), text in text_models()
    check_nulls(inside, text)
    for name, value in model.fixed.items():
        if inside.get(name) is not None and inside[name] != value:
            raise ConfigError(
                f"{name} = {format_value(inside[name])} is ignored by the class of {text}, which uses"
                f" {format_value(value)}",
                DROP,
            )
    for name in model.unread:
        if inside.get(name) and changes_counts(name):
            _refuse_unread(name, inside, text)
    sizes = model.sizes if known else config_class(text).nested_defaults if text in names() else {}
    sizes = {**sizes, TIED: True} if model.tied else sizes
    aliases = config_class(model.family).attribute_map if model.family in names() else {}
    given = {aliases.get(name, name) for name in inside}
    absent = {name: value for name, value in sizes.items() if name not in given}
    nulls = [name for name in model.null_means if name in inside and inside[name] is None]
    absent |= {name: value_of_null(model.null_means[name], {**absent, **inside}) for name in nulls}
    if model.head_dim_shared and inside.get("head_dim") is None:
        absent |= _shared_head_dim({**absent, **inside})
    others = {name for name, value in raw.items() if _other_model(name, value) and name not in fields}
    repeated = ("vision_config", "audio_config", *OTHER_MODELS)  # in older files
    others |= {name for name, value in inside.items() if name in repeated and _other_model(name, value)}
    if "head_dim" in model.unread:
        inside = {**inside, **_shared_head_dim({**absent, **inside})}
    nulls_of_family = {name for name in NO_NULLS if name in inside and inside[name] is None}  # this class may have them
    dropped = others | nulls_of_family
    text_fields = {name: value for name, value in inside.items() if name not in dropped and not _of_image_tokens(name)}
    return Submodel(
        {**_of_weights(raw), **text_fields, **absent, **model.fixed, "model_type": model.family},
        tuple(name for name in dict.fromkeys((*raw, *inside)) if name in others),
        absent,
    )


def _of_weights(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Format and dtype of the weights of all models in a composite."""
    return {name: raw[name] for name in (*STORAGE, "torch_dtype", "dtype") if name in raw}


def _shared_head_dim(fields: Mapping[str, Any]) -> dict[str, int]:
    """head_dim from the hidden size. Raises ConfigError if that does not divide."""
    hidden, heads = (fields.get(name) for name in ("hidden_size", "num_attention_heads"))
    if isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        return {"head_dim": divide_exactly(hidden, heads, "hidden_size by num_attention_heads")}
    return {}  # which the family does not support


def _other_model(name: str, value: Any) -> bool:
    """True for a field with another model's config; null means none."""
    named = name in OTHER_MODELS or (name.endswith("_config") and name not in STORAGE)
    return named and value is not None


def _of_image_tokens(name: str) -> bool:
    """True for a field with the number or the ids of image tokens, which do not change counts."""
    special = name.endswith(("_token_id", "_token_index")) and not name.startswith(("bos", "eos", "pad"))
    return special or name == "num_image_tokens"


def _refuse_unread(name: str, inside: Mapping[str, Any], text: str) -> None:
    """Raises ConfigError for a field that the text model's class ignores, if it would change a count."""
    if name == "head_dim" and _shared_head_dim(inside).get(name) == inside[name]:
        return
    layers = inside[name] if name == "layer_types" else None
    if isinstance(layers, list) and set(map(str, layers)) == {"full_attention"}:
        return
    raise ConfigError(f"{name} = {format_value(inside[name])} is ignored by the class of {text}", DROP)


def _unknown_composite(raw: Mapping[str, Any], model_type: str, field: str) -> Submodel:
    """The text model of a composite without a row, from its own config. Raises ConfigError."""
    inside: Mapping[str, Any] = raw[field]
    family = inside.get("model_type")
    alias = None if not isinstance(family, str) or family in names() else type_aliases().get(family)
    if not isinstance(family, str) or (family not in names() and alias is None):
        return Submodel(raw)
    heads = config_class(alias.family if alias else family).task_heads.values()
    if not heads or next(iter(heads)).auto != "AutoModelForCausalLM":
        return Submodel(raw)
    for name in ("hidden_size", "vocab_size"):  # from which its class may build the head
        if name in raw and raw[name] != inside.get(name):
            raise ConfigError(
                f"{name} = {format_value(raw[name])} of {model_type!r} contradicts"
                f" {format_value(inside.get(name))} in its {field}"
            )
    values = {config[TIED] for config in (raw, inside) if config.get(TIED) is not None}
    reads = {"composite": raw, "text": inside}.get(_tables()["tie_of_unknown"].get(model_type, ""))
    if reads is not None and reads.get(TIED) is None:
        values = set()
    if len(values) != 1:
        unsure = "contradicts itself on" if values else "does not say"
        raise ConfigError(
            f"the language model in {model_type!r} is a {family}, but the config {unsure} whether its head is tied",
            f"set {TIED} in {field}, and at the top level",
        )
    if inside.get("architectures") == raw.get("architectures"):  # transformers repeats the composite's
        inside = {**inside, "architectures": None}
    return _text_fields({**inside, TIED: values.pop()}, family, raw, (field,))


def canonical(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """A composite config of a custom class with transformers' field names; any other config unchanged. Raises
    ConfigError."""
    model_type = raw.get("model_type")
    if model_type == "ernie4_5_moe_vl":
        return _ernie(raw)
    retriever = _tables()["retriever"].get(str(model_type))
    if retriever is not None and isinstance(raw.get("vlm_config"), Mapping):
        return _retriever(raw, **retriever)
    jina = "JinaEmbeddingsV4Model"
    if model_type == "qwen2_5_vl" and raw.get("architectures") in ([jina], jina):
        ignored = _tables()["ignored_fields"]["jina_embeddings_v4"].split()
        fields = {name: value for name, value in raw.items() if name not in ignored}
        fields["multi_vector_projector"] = raw.get("multi_vector_projector_dim", 128)
        return {**fields, "architectures": None}
    return raw


def _retriever(raw: Mapping[str, Any], composite: str, text: str) -> Mapping[str, Any]:
    """The composite in vlm_config without a head; the output projector is listed as not included."""
    inside = raw["vlm_config"]
    model_type = (inside.get("text_config") or {}).get("model_type")
    body = config_class(model_type if model_type in names() else text).class_prefixes[0]
    common = {name: raw[name] for name in ("torch_dtype", "dtype", "quantization_config") if raw.get(name) is not None}
    fields = {"model_type": composite, **inside, **common, "architectures": [f"{body}Model"]}
    return {**fields, "multi_vector_projector": raw.get("embedding_dim", 128)}


def _deepseek_vl(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config of DeepSeek-VL2 or DeepSeek-OCR with the type of its text model. Their code builds DeepSeek-V2 from
    language_config, with DeepSeek-MoE's attention if use_mla is false. Raises ConfigError."""
    inside = raw.get("language_config")
    if not isinstance(inside, Mapping):
        return raw
    for name, value in (("lm_head", True), ("rm_head", False)):
        if inside.get(name, value) is not value:
            raise FamilyConfig.refused(name, inside[name])
    text = {name: value for name, value in inside.items() if name not in ("use_mla", "lm_head", "rm_head")}
    plain = inside.get("use_mla", True) is False
    if plain:
        for name in ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
            if text.pop(name, None):
                raise FamilyConfig.refused(name, inside[name])
        if text.get("architectures") == ["DeepseekV2ForCausalLM"]:
            del text["architectures"]  # the name of both in their code
    return {**raw, "language_config": {TIED: False, **text, "model_type": "deepseek" if plain else "deepseek_v2"}}


ERNIE_EXPERT_LAYERS = ("moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval")


def _ernie(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config of ERNIE 4.5 VL, which has the text model's fields at the top level and lists for both sets of experts.
    Raises ConfigError."""
    outer = {name: raw[name] for name in ("architectures", TIED) if name in raw}
    others = {name: value for name, value in raw.items() if name.endswith("_config") and value is not None}
    if isinstance(vision := others.get("vision_config"), Mapping):
        tower = {"hidden_size" if name == "embed_dim" else name: value for name, value in vision.items()}
        tower.pop("model_type", None)
        hidden, ratio = tower.get("hidden_size"), tower.pop("mlp_ratio", None)
        if isinstance(hidden, int) and isinstance(ratio, int):
            tower["intermediate_size"] = hidden * ratio
        others["vision_config"] = tower
    dropped = {*others, *_tables()["ignored_fields"]["ernie4_5_moe_vl"].split(), *ERNIE_EXPERT_LAYERS}
    dropped |= {"model_type", "architectures"}
    text = {name: value for name, value in raw.items() if name not in dropped}
    if isinstance(count := raw.get("moe_num_experts"), list):
        if len(count) != 2 or count[0] != count[1]:
            raise FamilyConfig.refused("moe_num_experts", count)
        text["moe_num_experts"] = count[0]
    if any(name in raw for name in ERNIE_EXPERT_LAYERS):
        text["mlp_layer_types"] = _ernie_layer_types(raw)
    return {**outer, **others, "model_type": "ernie4_5_vl_moe", "text_config": text}


def _ernie_layer_types(raw: Mapping[str, Any]) -> list[str]:
    """`sparse` for each layer with experts, which both sets must have in the same layers. Raises ConfigError."""
    layers = raw.get("num_hidden_layers")
    if not isinstance(layers, int) or isinstance(layers, bool) or not 0 < layers <= MOST_LAYERS:
        raise ConfigError(
            f"num_hidden_layers must be a whole number from 1 to {MOST_LAYERS:,}, not {format_value(layers)}"
        )
    interval = _integer("moe_layer_interval", raw.get("moe_layer_interval", 1), 1)
    sets = []
    for number in (0, 1):
        first, last = (_of_set(raw, name, number) for name in ERNIE_EXPERT_LAYERS[:2])
        last = layers - 1 if last == -1 else last
        sets.append([first <= layer <= last and (layer + 1) % interval == 0 for layer in range(layers)])
    if sets[0] != sets[1]:
        raise ConfigError(
            "moe_layer_start_index and moe_layer_end_index give text and images experts in different layers",
            f"no class supports that; choose the layers yourself: {setting('mlp_layer_types')}",
        )
    return ["sparse" if sparse else "dense" for sparse in sets[0]]


def _of_set(raw: Mapping[str, Any], name: str, number: int) -> int:
    """A field's value for one set of experts. By default the first layer is dense. Raises ConfigError."""
    value = raw.get(name, 1 if name == "moe_layer_start_index" else -1)
    if isinstance(value, list):
        if len(value) != 2:
            raise ConfigError(f"{name} = {format_value(value)} must have a number for text and one for images")
        value = value[number]
    return _integer(name, value, -1)


def _integer(name: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} must be a whole number from {least}, not {format_value(value)}")
    return value
