"""Types of published configs that a known family computes under another name: the rows of `type_aliases.toml`."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.spelling import setting
from tfacct.families.family_config import FamilyConfig, by_field_names, value_of_null
from tfacct.families.known_fields import DRAFT, is_draft
from tfacct.families.registry import config_class, names
from tfacct.families.task_heads import class_ending

WORDS = ("halved", "required", "uniform_lists", "ignored_fields")
"""Keys of the file with words."""
MOST_IN_A_LIST = 128


class TypeAlias(NamedTuple):
    """The conversion of a type to a family; `type_aliases.toml` explains the keys."""

    family: str
    classes: Mapping[str, str] = {}
    attribute_map: Mapping[str, str] = {}
    overrides: Mapping[str, str] = {}
    defaults: Mapping[str, Any] = {}
    mlp_ratio: int | str | None = None
    halved: Sequence[str] = ()
    required: Sequence[str] = ()
    required_values: Mapping[str, Sequence[Any]] = {}
    uniform_lists: Sequence[str] = ()
    ignored_fields: Sequence[str] = ()
    computed: Mapping[str, str] = {}

    def check(self, config: FamilyConfig) -> None:
        """Raises ConfigError for fields that its code does not follow."""
        sizes = {name: getattr(config, name) for name in type(config).model_fields}
        for name, instead in self.computed.items():
            if sizes[name] != value_of_null(instead, sizes):
                raise config.refused(name, sizes[name])

    def understands(self, name: str, value: Any) -> bool:
        """True if a field of `required_values` has one of these."""
        listed = name in self.uniform_lists and isinstance(value, list) and 0 < len(value) <= MOST_IN_A_LIST
        return all(one in self.required_values[name] for one in (value if listed else [value]))

    def class_of_family(self, name: str) -> str | None:
        """The family's class for a custom class; None for another class."""
        if name in self.classes:
            return self.classes[name]
        found = ((family_class, class_ending(name, (custom,))) for custom, family_class in self.classes.items())
        return next((f"{family_class}{ending}" for family_class, ending in found if ending), None)


class Resolved(NamedTuple):
    """A config with the family's names: its fields, the user's settings, the defaults of its code, and the alias, if
    any."""

    fields: Mapping[str, Any]
    sets: dict[str, Any]
    defaulted: dict[str, Any]
    alias: TypeAlias | None


@cache
def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def type_aliases() -> dict[str, TypeAlias]:
    """Aliases by `model_type`."""
    return {name: _alias(row) for name, row in _tables()["type"].items()}


@cache
def class_aliases() -> dict[tuple[str, str], TypeAlias]:
    """Aliases by `model_type` and class, for types with several families."""
    return {(row["type"], name): _alias(row) for name, row in _tables()["class"].items()}


def _alias(row: Mapping[str, Any]) -> TypeAlias:
    found = {name: value for name, value in _extended(row).items() if name != "type"}
    found["defaults"] = {name: _decoded(value) for name, value in found.get("defaults", {}).items()}
    understood = found.get("required_values", {})
    found["required_values"] = {name: [*map(_decoded, values)] for name, values in understood.items()}
    return TypeAlias(**found)


def _extended(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row merged with the row that it extends."""
    found = _extended(_tables()["base"][row["like"]]) if "like" in row else {}
    for key, value in row.items():
        if key in WORDS:
            found[key] = [*found.get(key, ()), *value.split()]
        elif key != "like":
            found[key] = {**found.get(key, {}), **value} if isinstance(value, dict) else value
    return found


def _decoded(value: Any) -> Any:
    return None if value == "null" else value


def resolve(raw: Mapping[str, Any], sets: Mapping[str, Any]) -> Resolved:
    """A config and the user's settings with the names of the family that computes it. Raises ConfigError."""
    model_type = sets.get("model_type", raw.get("model_type"))
    listed = _listed(sets.get("architectures", raw.get("architectures")))
    alias = _alias_of(model_type, listed) if isinstance(model_type, str) else None
    if alias is None:
        return Resolved(raw, dict(sets), {}, None)
    prefixes = config_class(alias.family).class_prefixes
    if not all(alias.class_of_family(name) or class_ending(name, prefixes) for name in listed):
        problem = (
            f"architectures = {format_value(listed)} is not a class of {model_type}, which is counted as {alias.family}"
        )
        anyway = f"count it that way with {setting('architectures')}"
        raise ConfigError(problem, DRAFT if is_draft({**raw, **sets}, listed) else anyway)
    over, translated = _translated(sets, alias), _translated(raw, alias)
    there = {**translated, **over}
    for name in alias.required:
        if not any(fields.get(name) is not None for fields in (raw, sets, there)):
            raise ConfigError(f"required field {name!r} is missing")
    filled = {name: value for name, value in alias.defaults.items() if name not in there}
    ratio = {**raw, **sets}.get(alias.mlp_ratio) if isinstance(alias.mlp_ratio, str) else alias.mlp_ratio
    hidden = there.get("hidden_size")
    if there.get("intermediate_size") is None and isinstance(hidden, int) and isinstance(ratio, int):
        filled["intermediate_size"] = ratio * hidden // (2 if "intermediate_size" in alias.halved else 1)
    over.pop("model_type", None)
    given = {name for name in alias.required_values if name in raw} | {"pad_token_id"}
    defaulted = {name: value for name, value in filled.items() if name not in given}
    return Resolved({**translated, **filled, "model_type": alias.family}, over, defaulted, alias)


def _alias_of(model_type: str, listed: list[str]) -> TypeAlias | None:
    """The alias of a type, or of its first class. The file is not read for types and classes of families."""
    if model_type in names() and (not listed or class_ending(listed[0], config_class(model_type).class_prefixes)):
        return None
    return class_aliases().get((model_type, "".join(listed[:1]))) or type_aliases().get(model_type)


def _translated(fields: Mapping[str, Any], alias: TypeAlias) -> dict[str, Any]:
    """The fields under the family's names, without those that do not change counts. Raises ConfigError."""
    for name in alias.required_values:
        if name in fields and not alias.understands(name, fields[name]):
            raise FamilyConfig.refused(name, fields[name])
    dropped = {*alias.ignored_fields, *alias.required_values}
    counted = {name: value for name, value in fields.items() if name not in dropped}
    for name, other in alias.overrides.items():
        counted.pop(other if counted.get(name) is not None else name, None)
    named = by_field_names(counted, {**alias.attribute_map, **alias.overrides})
    for name in named.keys() & alias.halved:
        named[name] = named[name] // 2 if isinstance(named[name], int) else named[name]
    if "architectures" in named:
        listed = _listed(named["architectures"])
        named["architectures"] = [alias.class_of_family(name) or name for name in listed] or named["architectures"]
    return named


def _listed(named: Any) -> list[str]:
    """The classes in a config; empty if they are not names."""
    listed = named if isinstance(named, list) else [named]
    return listed if all(isinstance(name, str) for name in listed) else []
