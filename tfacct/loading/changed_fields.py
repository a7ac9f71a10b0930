"""Hints on fields that a user set: those that change no count, and sizes that do not follow a new hidden size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

from tfacct import families
from tfacct.base.errors import TfacctError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.spelling import setting, spelled
from tfacct.families.known_fields import meant_field
from tfacct.loading.model import LoadedModel
from tfacct.loading.model_description import FORMAT_FIELDS

GATES = 2
"""Most other fields whose values together can leave a field without effect."""
WIDTHS = ("intermediate_size", "moe_intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
"""Sizes that usually grow with the hidden size."""


def change_hints(models: Sequence[LoadedModel]) -> list[str]:
    """Hints on the fields that a user set, for all settings of each model."""
    settings: dict[str, list[LoadedModel]] = {}
    for model in models:
        if model.changed:
            settings.setdefault(model.name, []).append(model)
    each = settings.items()
    return [hint for name, found in each for hint in (*_effect_hints(name, found), *_width_hints(found))]


def without_effect(model: LoadedModel) -> list[str]:
    """The set fields that change neither the ledger nor the longest context, though they change the config. None if
    they change something together."""
    names = [name for name in model.changed if _is_known(model, name) and not _changes(model, [name], {})]
    return [] if _changes(model, names, {}) else names


def _effect_hints(name: str, settings: Sequence[LoadedModel]) -> list[str]:
    """Hints on set fields without effect in any setting of a model, with the fields that decide so."""
    fields = without_effect(settings[-1])
    fields = [field for field in fields if all(field in without_effect(one) for one in settings[:-1])]
    return [f"hint: {field} changes no count of {name}{_reason(settings[-1], field)}" for field in fields]


def _width_hints(settings: Sequence[LoadedModel]) -> list[str]:
    """The hint on sizes that do not follow a hidden size that was set, because the config sets them, and on how to
    scale them too; of the last setting that has any."""
    before = _read(settings[0], [*settings[0].changed], {})
    for model in reversed(settings):
        wider = Fraction(model.architecture.embed.hidden, before.architecture.embed.hidden) if before else 1
        names = {name: model.config.attribute_map.get(name, name) for name in WIDTHS}
        stay = {field: model.raw.get(field) for field in names.values() if field not in model.changed}
        sizes = {field: size for field, size in stay.items() if isinstance(size, int) and size > 0}
        if wider == 1 or not sizes:
            continue
        one, them = ("does", "it") if len(sizes) == 1 else ("do", "them")
        named = ", ".join(f"{field} {size:,}" for field, size in sizes.items())
        words = f"hint: {named} {one} not follow the new hidden size, because the config sets {them}"
        scaled = {field: wider * size for field, size in sizes.items() if size > 1 and field != names["head_dim"]}
        if not scaled or any(size.denominator > 1 for size in scaled.values()):
            return [f"{words}."]
        typed = spelled(" ", ", ").join(setting(field, int(size)) for field, size in scaled.items())
        return [f"{words}; add {typed} to scale {'them' if len(scaled) > 1 else 'it'} too."]
    return []


def _is_known(model: LoadedModel, name: str) -> bool:
    """True if the family ignores the field, or has it with another value than before. The dtypes and the format of the
    weights change bytes, dropout changes what a training step saves."""
    field = model.config.attribute_map.get(name, name)
    if field in model.config.dropout_fields() or name in FORMAT_FIELDS or name.endswith("dtype"):
        return False
    if field not in type(model.config).model_fields:
        return field in model.config.settable()
    before, after = _read(model, [name], {}), _read(model, [], {})
    return None not in (before, after) and getattr(before.config, field) != getattr(after.config, field)


def _changes(model: LoadedModel, names: Sequence[str], others: Mapping[str, Any]) -> bool:
    """True if counts change without the set fields `names`, where `others` are set."""
    before, after = _read(model, names, others), _read(model, [], others)
    if before is None or after is None:
        return not others
    return _counts(before) != _counts(after)


def _counts(config: Any) -> tuple[Any, ...]:
    return config.architecture.ledger(), config.config.context, config.not_included


def _read(model: LoadedModel, without: Sequence[str], others: Mapping[str, Any]) -> Any:
    """The config without some of the set fields, and with others; None if it is not valid."""
    part: Any = model.part or "text"
    sets = {name: value for name, value in model.changed.items() if name not in without}
    try:
        return families.read(model.original, {**sets, **others}, part)
    except TfacctError:
        return None


def _reason(model: LoadedModel, field: str) -> str:
    """What to set instead of an ignored field, or the fewest fields without whose values the field would change counts,
    and how to set them."""
    read = type(model.config).model_fields
    if model.config.attribute_map.get(field, field) not in read:
        meant = meant_field(field, read)
        return f": did you mean {meant}?" if meant else "."
    values = {name: value for name, value in model.config.model_dump().items() if name != field}
    off_or_on = ((name, not value if isinstance(value, bool) else 0) for name, value in values.items())
    probes = {name: value for name, value in off_or_on if isinstance(values[name], int)}
    for count in range(1, GATES + 1):
        for names in combinations(probes, count):
            others = {name: probes[name] for name in names}
            if _changes(model, [field], others):
                here = " and ".join(f"{name} = {format_value(values[name])}" for name in names)
                sets = [(f"--set {name}={format_value(value)}", f"{name}={value!r}") for name, value in others.items()]
                typed = spelled(*(" ".join(each) for each in zip(*sets, strict=True)))
                return f": {here} (it does with {typed})"
    return "."
