"""A config of a type that is a known family's computation under another name, in that family's words."""

from collections.abc import Mapping
from typing import Any

from tfacct.base.complaints import format_value
from tfacct.base.errors import ConfigError
from tfacct.base.spelling import setting
from tfacct.families import _classes as classes
from tfacct.families._spelled_types import BY_CLASS, SPELLED, Spelled
from tfacct.families.family_config import FamilyConfig, by_field_names
from tfacct.families.known_fields import DRAFT, is_draft
from tfacct.families.registry import config_class


def respelled(
    raw: Mapping[str, Any], sets: Mapping[str, Any]
) -> tuple[Mapping[str, Any], dict[str, Any], dict[str, Any], Spelled | None]:
    """A config and what the user set over it, in the family's words; what its code takes for fields that neither says;
    and how it is spelled, None where it is spelled as the family. Raises ConfigError."""
    named = sets.get("model_type", raw.get("model_type"))
    listed = _listed(sets.get("architectures", raw.get("architectures")))
    by_class = BY_CLASS.get((named, "".join(listed[:1]))) if isinstance(named, str) else None
    spelled = by_class or (SPELLED.get(named) if isinstance(named, str) else None)
    if spelled is None:
        return raw, dict(sets), {}, None
    _check_classes(str(named), listed, spelled, {**raw, **sets})
    over, said = _translated(sets, spelled), _translated(raw, spelled)
    there = {**said, **over}
    for name in spelled.needs:
        if not any(fields.get(name) is not None for fields in (raw, sets, there)):
            raise ConfigError(f"required field {name!r} is missing")
    filled = {name: value for name, value in spelled.absent.items() if name not in there}
    times = {**raw, **sets}.get(spelled.wide) if isinstance(spelled.wide, str) else spelled.wide
    hidden = there.get("hidden_size")
    if there.get("intermediate_size") is None and isinstance(hidden, int) and isinstance(times, int):
        filled["intermediate_size"] = times * hidden // (2 if "intermediate_size" in spelled.halved else 1)
    over.pop("model_type", None)
    counted = (name for name in filled if name != "pad_token_id" and not (name in spelled.only and name in raw))
    return {**said, **filled, "model_type": spelled.family}, over, {name: filled[name] for name in counted}, spelled


def _translated(fields: Mapping[str, Any], spelled: Spelled) -> dict[str, Any]:
    """The fields in the family's words, less those that change no count. Raises ConfigError."""
    for name, understood in spelled.only.items():
        if name in fields and fields[name] not in understood:
            raise FamilyConfig.refused(name, fields[name])
    own = {name: value for name, value in fields.items() if name not in spelled.silent and name not in spelled.only}
    for name, other in spelled.instead.items():
        own.pop(other if own.get(name) is not None else name, None)
    named = by_field_names(own, {**spelled.names, **spelled.instead})
    for name in spelled.halved & named.keys():
        named[name] = named[name] // 2 if isinstance(named[name], int) else named[name]
    if "architectures" in named:
        listed = _listed(named["architectures"])
        named["architectures"] = [_class(name, spelled.classes) or name for name in listed] or named["architectures"]
    return named


def _check_classes(named: str, listed: list[str], spelled: Spelled, fields: Mapping[str, Any]) -> None:
    """Refuse classes that are neither its own nor the family's: they are other models. Raises ConfigError."""
    stems = config_class(spelled.family).class_prefixes
    if not all(_class(name, spelled.classes) or classes.ending(name, stems) for name in listed):
        raise ConfigError(
            f"architectures = {format_value(listed)} names no class of {named}, which is read as {spelled.family}",
            DRAFT if is_draft(fields, listed) else f"to count it as that anyway: {setting('architectures')}",
        )


def _listed(named: Any) -> list[str]:
    """The classes that a config names; none where those are no names."""
    listed = named if isinstance(named, list) else [named]
    return listed if all(isinstance(name, str) for name in listed) else []


def _class(name: str, own: Mapping[str, str]) -> str | None:
    """The family's class for one of its own code; None where it is none of that."""
    if name in own:
        return own[name]
    found = ((theirs, classes.ending(name, (ours,))) for ours, theirs in own.items())
    return next((f"{theirs}{ending}" for theirs, ending in found if ending), None)
