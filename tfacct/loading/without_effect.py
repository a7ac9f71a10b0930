"""Fields that a user set and that change no count, because of other fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from tfacct import families
from tfacct.base.errors import TfacctError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.spelling import spelled
from tfacct.loading.model import LoadedModel

GATES = 2
"""Most other fields whose values together can leave a field without effect."""


def without_effect(model: LoadedModel) -> list[str]:
    """The set fields that change neither the ledger nor the longest context, though they change the config. None if
    they change something together."""
    names = [name for name in model.changed if _is_read(model, name) and not _changes(model, [name], {})]
    return [] if _changes(model, names, {}) else names


def effect_hints(models: Sequence[LoadedModel]) -> list[str]:
    """Hints on set fields without effect in any setting of a model, with the fields that decide so."""
    settings: dict[str, list[LoadedModel]] = {}
    for model in models:
        if model.changed:
            settings.setdefault(model.name, []).append(model)
    hints = []
    for name, each in settings.items():
        fields = without_effect(each[-1])
        fields = [field for field in fields if all(field in without_effect(one) for one in each[:-1])]
        hints += [f"hint: {field} changes no count of {name}{_reason(each[-1], field)}" for field in fields]
    return hints


def _is_read(model: LoadedModel, name: str) -> bool:
    """True if the class has the field, and it has another value than before."""
    if name in model.config.ignored_fields:
        return True
    field = model.config.attribute_map.get(name, name)
    if field not in type(model.config).model_fields or field in model.config.dropout_fields():
        return False
    before, after = _read(model, [name], {}), _read(model, [], {})
    return None not in (before, after) and getattr(before.config, field) != getattr(after.config, field)


def _changes(model: LoadedModel, names: Sequence[str], others: Mapping[str, Any]) -> bool:
    """True if counts change without the set fields `names`, where `others` are set."""
    before, after = _read(model, names, others), _read(model, [], others)
    if before is None or after is None:
        return not others
    return (before.architecture.ledger(), before.config.context) != (after.architecture.ledger(), after.config.context)


def _read(model: LoadedModel, without: Sequence[str], others: Mapping[str, Any]) -> Any:
    """The config without some of the set fields, and with others; None if it is not valid."""
    part: Any = model.part or "text"
    sets = {name: value for name, value in model.changed.items() if name not in without}
    try:
        return families.read(model.original, {**sets, **others}, part)
    except TfacctError:
        return None


def _reason(model: LoadedModel, field: str) -> str:
    """The fewest fields without whose values the field would change counts, and how to set them."""
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
