"""`read`: the transformer of a config, with the fields that a user sets."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError, ModelTypeError, NotFoundError, beginning_alike, cut, nearest
from tfacct.base.pydantic_messages import format_value
from tfacct.base.spelling import setting
from tfacct.families.family_config import FamilyConfig
from tfacct.families.fields import MOST_LAYERS
from tfacct.families.known_fields import (
    DRAFT,
    IGNORED_FIELDS,
    MTP_FIELDS,
    changes_counts,
    check_nulls,
    common_words,
    is_draft,
    meant_field,
)
from tfacct.families.registry import CUSTOM, Part, Submodel, class_names, config_class, names, that_read
from tfacct.families.task_heads import CAUSAL_MODEL, TaskHead, class_ending, listed_classes
from tfacct.families.type_aliases import resolve
from tfacct.families.unsupported import NotIncluded, not_included, unsupported_classes, unsupported_types

COMMON = ("llama", "bert", "gpt2")
"""Families whose files often have no model_type, or another."""


class ParsedConfig(NamedTuple):
    """A config that was read."""

    family: str
    config: FamilyConfig
    """Its checked fields."""
    architecture: Transformer
    """The transformer that they describe."""
    fields: Mapping[str, Any]
    """The language model's fields as they were given, with what the user set over them."""
    defaulted: Mapping[str, Any]
    """Fields that took a default."""
    unknown: tuple[str, ...]
    """Names of fields that no family knows."""
    left_out: tuple[str, ...]
    """Fields with the configs of other models, which are not counted."""
    parts: tuple[Part, ...] = ()
    """Parts of a composite config that are counted together."""
    not_included: NotIncluded | None = None
    """Layers that the config names and the counts do not include."""


def read(raw: Mapping[str, Any], sets: Mapping[str, Any] | None = None, part: Part = "text") -> ParsedConfig:
    """The transformer of a `config.json`, or of the tables of a custom model, with the fields in `sets`; of a composite
    config, one `part`.

    Raises ConfigError if it is not supported, NotFoundError if the family does not have a field in `sets`.

    >>> sizes = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6}
    >>> reading = read({"model_type": "llama", **sizes, "note": "mine"}, {"intermediate_size": 71})
    >>> reading.family, reading.unknown, reading.architecture.stacks[0].count
    ('llama', ('note',), 3)
    """
    model = _part_of(_custom_model(raw), part)
    given, changes, taken, alias = resolve(model.fields, sets or {})
    model_type = _model_type({**given, **changes})
    family = config_class(model_type)
    check_nulls({**given, **changes}, model_type)
    _check_names(given, changes, model_type, family)
    fields = _with_changes(given, changes, family)
    task_head, others = _task_head(model_type, family, fields)
    config, defaulted, unknown = family.read(fields)
    if alias is not None:
        alias.check(config)
    defaulted |= {name: value for name, value in {**model.defaulted, **taken}.items() if name not in changes}
    if task_head is None and config.task_head.scores_classes:  # a family's first class
        task_head = config.task_head
    if task_head is not None:
        defaulted |= config.choose_task_head(task_head, fields)
        if task_head.head != "lm":
            defaulted.pop("tie_word_embeddings", None)  # there is no head to tie
    shape = config.transformer_with_dropouts(fields)
    if fields.get("is_causal") is False and "is_causal" not in family.model_fields:
        _check_encoder(shape)
    without, missing = (*model.left_out, *others), not_included(fields)
    return ParsedConfig(model_type, config, shape, fields, defaulted, tuple(unknown), without, model.parts, missing)


def _custom_model(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tables of a custom model as fields with dotted names; any other config unchanged."""
    if raw.get("model_type", CUSTOM) != CUSTOM or "model" not in raw:
        return raw
    from tfacct.families.custom_tables import flattened

    return {"model_type": CUSTOM, **flattened({name: value for name, value in raw.items() if name != "model_type"})}


def _part_of(raw: Mapping[str, Any], part: Part) -> Submodel:
    """One part of a composite config; any other config unchanged."""
    if raw.get("model_type", CUSTOM) in names() and not _encoder_is_composite(raw):
        return Submodel(raw)
    from tfacct.families import multimodal

    return multimodal.split(raw, part)


def _encoder_is_composite(raw: Mapping[str, Any]) -> bool:
    """True for an encoder-decoder whose encoder is a composite config."""
    inside = raw.get("encoder")
    return isinstance(inside, Mapping) and inside.get("vision_config") is not None


def _model_type(fields: Mapping[str, Any]) -> str:
    """The family's name. Raises ConfigError if it is not supported."""
    model_type = fields.get("model_type")
    if model_type is None:
        adds = 'add "model_type": "…" to the config'
        raise ConfigError("the config has no model_type", _no_model(fields) or _by_its_class(fields, adds))
    if not isinstance(model_type, str) or model_type not in names():
        if isinstance(model_type, str) and model_type in unsupported_types():
            raise ModelTypeError(f"model_type {model_type!r} is not supported: {unsupported_types()[model_type]}")
        raise ModelTypeError(f"unknown model_type {cut(repr(model_type))}", _by_its_class(fields))
    return model_type


def _no_model(fields: Mapping[str, Any]) -> str | None:
    """Hint for a config of PEFT or diffusers, which no model_type makes one of a model that is counted."""
    if "peft_type" in fields:
        base = fields.get("base_model_name_or_path")
        return f"it describes an adapter; give its base model{f': {cut(base)}' if isinstance(base, str) else ''}"
    name = fields.get("_class_name")
    return f"{cut(name)} is a class of diffusers, which is not counted" if isinstance(name, str) else None


def _by_its_class(fields: Mapping[str, Any], instead: str | None = None) -> str:
    """Hint: the family of the class in the config, or how to count it as another. Similar names are not suggested,
    because they are other architectures: mbart is not bart, gptj is not gpt2."""
    for name in listed_classes(fields.get("architectures")):
        prefixes = {family: config_class(family).class_prefixes for family in names()}
        owners = [family for family, class_names_of in prefixes.items() if class_ending(name, class_names_of)]
        if owners:  # of two families with one class, the one that it is named after
            family = min(owners, key=lambda family: class_ending(name, prefixes[family][:1]) is None)
            return f"its class {cut(name)} belongs to {family}: {setting('model_type', family)}"
    course = {name for name, field in config_class("cs336").model_fields.items() if field.is_required()}
    if course <= fields.keys():
        return f"its fields are those of the course CS336: {setting('model_type', 'cs336')}"
    return "; ".join(filter(None, (instead, _near(fields) or _as_common(fields))))


def _near(fields: Mapping[str, Any]) -> str | None:
    """Hint: the family with the same name prefix as an unknown model_type, and the reason why it does not match; None
    if it accepts the config, which may still belong to another model."""
    model_type = fields.get("model_type")
    alike = beginning_alike(model_type, names()) if isinstance(model_type, str) else []
    for near in alike[:1]:
        try:
            read({**fields, "model_type": near, "architectures": None})
        except ConfigError as refusal:
            if any(refusal.message.startswith(name) for name in fields):
                return f"the nearest, {near}, does not match: {refusal.message}"
    return None


def _as_common(fields: Mapping[str, Any]) -> str:
    """Hint for an unknown family: the first common one that knows every field, or Llama if it can read them."""
    unknown = {}
    for name in COMMON:
        with suppress(ConfigError):
            unknown[name] = read({**fields, "model_type": name, "architectures": None}).unknown
    family = next((name for name in unknown if not unknown[name]), "llama")
    if family not in unknown:
        return "see `tfacct help your-model`"
    sets = setting("model_type", family)
    if fields.get("architectures"):
        sets += f" {setting('architectures')}"
    like = config_class(family).class_prefixes[0]
    return f"{sets} counts it as a {like}, if it has the same layers; if not, see `tfacct help your-model`"


def _check_encoder(shape: Transformer) -> None:
    """Raises ConfigError for is_causal = false if the family is counted with causal attention."""
    if any(getattr(attention, "causal", True) for attention in shape.attentions):
        raise FamilyConfig.refused("is_causal", False)


def _check_names(
    given: Mapping[str, Any], changes: Mapping[str, Any], model_type: str, family: type[FamilyConfig]
) -> None:
    """Raises NotFoundError for a set field that neither the family nor the config has."""
    known = family.settable({**given, **changes}) | set(given) | set(family.attribute_map)
    for name in changes:
        if name not in known:
            meant = meant_field(name, family.model_fields)
            counted = known - (IGNORED_FIELDS | MTP_FIELDS | {*family.ignored_fields}).difference(family.model_fields)
            near = f"did you mean {meant}?" if meant else not common_words(name) and nearest(name, sorted(counted))
            own = "" if model_type == CUSTOM else "`tfacct help your-model` describes other layers; "
            fields = f"{own}fields that count: {', '.join(family.counted())}"
            hint = near or _alike_with(name, given, changes) or fields
            where = "a custom model" if model_type == CUSTOM else model_type
            raise NotFoundError(f"no field {name!r} in {where}", hint)


def _alike_with(name: str, given: Mapping[str, Any], changes: Mapping[str, Any]) -> str | None:
    """Hint: the first family that has a field which changes counts, and counts the config the same without it."""
    if not changes_counts(name):
        return None
    counted = read(given).architecture.ledger()
    for model_type in that_read(name):
        other = {**given, "model_type": model_type, "architectures": None}
        try:
            alike = read({**other, name: None}).architecture.ledger() == counted
            if alike and read({**other, **changes}):
                sets = (setting("model_type", model_type), setting("architectures"), setting(name, changes[name]))
                return f"{model_type} has the same layers, and this field: {' '.join(sets)}"
        except (ConfigError, NotFoundError):
            continue
    return None


def _with_changes(given: Mapping[str, Any], changes: Mapping[str, Any], family: type[FamilyConfig]) -> dict[str, Any]:
    """The config with the set fields, under the names used in the config.

    Lists with a single kind of layer are adapted to a set number of layers. One kind set as `layer_types` is that of
    every layer.
    """
    read_as = {family.attribute_map.get(name, name) for name in changes}
    fields = {name: value for name, value in given.items() if family.attribute_map.get(name, name) not in read_as}
    fields.update(changes)
    layers, count = fields.get("layer_types"), changes.get("num_hidden_layers")
    alike = isinstance(layers, list) and len(set(map(str, layers))) == 1 and "layer_types" not in changes
    if isinstance(layers, list) and alike and isinstance(count, int) and 0 < count <= MOST_LAYERS:
        fields["layer_types"] = layers[:1] * count
    every, layer_count = changes.get("layer_types"), fields.get("num_hidden_layers")
    if isinstance(every, str) and isinstance(layer_count, int) and 0 < layer_count <= MOST_LAYERS:
        fields["layer_types"] = [every] * layer_count
    return fields


def _task_head(
    model_type: str, family: type[FamilyConfig], fields: Mapping[str, Any]
) -> tuple[TaskHead | None, list[str]]:
    """The head of the class in a config, None without a class; and classes with heads listed next to a base model.
    Another class is another model, and another head changes the counts. Raises ConfigError."""
    named = listed_classes(fields.get("architectures"))
    if not named:
        return None, []
    endings = [ending for name in named if (ending := class_ending(name, family.class_prefixes))]
    given, first = f"architectures = {format_value(named)}", next(iter(family.task_heads), "")
    plain = None if is_draft(fields, named) else setting("architectures")
    if not endings:
        if named[0] in unsupported_classes():
            raise ConfigError(
                f"{given} is not supported: {unsupported_classes()[named[0]]}",
                f"count the base model alone with {setting('architectures', f'{family.class_prefixes[0]}Model')}",
            )
        known_class = f"its class is {family.class_prefixes[0]}{first}" if family.class_prefixes else "it has no class"
        raise ConfigError(
            f"{given} is not a class of {model_type}: {known_class}",
            f"count it as a plain {model_type} with {plain}" if plain else DRAFT,
        )
    if len(endings) == len(named) and family.task_heads.get(endings[0], CAUSAL_MODEL).head == "none":
        body = family.task_heads[endings[0]]
        others = [name for name, end in zip(named, endings, strict=True) if family.task_heads.get(end) != body]
        return body, others
    there = [family.task_heads.get(ending) for ending in endings]
    if there[0] is None or any(other != there[0] for other in there):
        known = f"supported: {', '.join(class_names(family))}"
        raise ConfigError(
            f"{given}: the head of {'this class' if len(there) == 1 else 'these classes'} is not supported",
            f"{known}; {plain} counts {family.class_prefixes[0]}{first}" if plain else known,
        )
    return there[0], []
