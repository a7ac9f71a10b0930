"""Dotted names of an own model's keys, `decoder.local.attention.window`: to them, and back to tables within tables."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from tfacct.base.complaints import format_value
from tfacct.base.errors import ConfigError, cut, nearest
from tfacct.families._own_tables import ANY, KEYS, OF_A_SIDE, PARTS, PLACES, SIDES, TABLES

Tables: TypeAlias = dict[str, Any]
NUMBER = re.compile(r"[1-9][0-9]{0,5}")
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def general(path: str) -> str:
    """A dotted name with `*` for the kind of block, or for the number of layers, where it holds one."""
    words = path.split(".")
    if len(words) > 1 and words[0] in SIDES:
        if words[1] in PLACES:
            words[1:3] = [ANY] if len(words) > 2 else words[1:3]
        elif words[1] not in OF_A_SIDE:
            words[1] = ANY
    return ".".join(words)


def keys_of_places(paths: Mapping[str, Any]) -> frozenset[str]:
    """Every key that kinds of blocks, and layers by number, may have in a file with these dotted names."""
    places = {".".join(words[:3]) for words in map(_words, paths) if len(words) > 3 and words[1] in PLACES}
    for side in SIDES:
        pattern = paths.get(f"{side}.pattern")
        places |= {f"{side}.{word}" for word in pattern} if isinstance(pattern, list) else set()
    return frozenset(
        f"{place}.{name}.{key}" for place in places for name, table in PARTS.items() for key in table.model_fields
    )


def _words(path: str) -> list[str]:
    return path.split(".") if path.startswith(SIDES) else []


def flattened(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Tables within tables as keys with dotted names; a table without keys stands for itself."""
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        path = f"{before}{name}"
        if isinstance(value, Mapping) and value and general(path) in TABLES:
            flat |= flattened(value, f"{path}.")
        else:
            flat[path] = value
    return flat


def nested(flat: Mapping[str, Any]) -> Tables:
    """The tables again, without keys that are null. Raises ConfigError for a table or key that there is not."""
    tables: Tables = {}
    for path, value in flat.items():
        if value is None:
            continue
        named = general(path)
        _check_place(path, flat)
        if named in TABLES and not isinstance(value, Mapping):
            raise ConfigError(f"[{path}] must be a table, not {format_value(value)}")
        if named not in TABLES and named not in KEYS:
            raise _unknown(path)
        *outer, name = path.split(".")
        at = tables
        for word in outer:
            at = at.setdefault(word, {})
        at.setdefault(name, {}) if named in TABLES else at.update({name: value})
    return tables


def _check_place(path: str, flat: Mapping[str, Any]) -> None:
    """Refuse a kind of block that its side's pattern does not name, and a place without its number of layers."""
    side, _, rest = path.partition(".")
    if side not in SIDES or not rest:
        return
    place, _, inner = rest.partition(".")
    if place in PLACES:
        number = inner.partition(".")[0]
        if inner and not NUMBER.fullmatch(number):
            raise ConfigError(
                f"[{side}.{place}.{cut(number)}]: {cut(number)!r} is no number of layers",
                f"as in [{side}.{place}.6.attention]",
            )
        return
    if place in OF_A_SIDE:
        return
    pattern = flat.get(f"{side}.pattern")
    if pattern is not None and not (pattern and isinstance(pattern, list)):
        return  # refused with the pattern
    kinds = [word for word in pattern or () if isinstance(word, str)]
    if place in kinds:
        return
    known = [name for name in _within(side) if "." not in name] + kinds
    if kinds:
        named = f"{side}.pattern names {', '.join(map(cut, dict.fromkeys(kinds)))}"
        raise ConfigError(f"[{side}] has no {cut(place)!r}: {cut(named)}", nearest(place, known))
    if inner.partition(".")[0] in PARTS and not nearest(place, known):
        raise ConfigError(f"[{side}] has no {cut(place)!r}", f'{side}.pattern = ["{cut(place)}", …] would name it')
    raise _unknown(f"{side}.{place}")


def _within(place: str) -> list[str]:
    """Keys and tables in a table."""
    found = (name.removeprefix(f"{place}.") for name in (*KEYS, *TABLES) if name.rpartition(".")[0] == place)
    return [name for name in found if name != ANY]


def _unknown(path: str) -> ConfigError:
    """A name that there is not, and the nearest that there is."""
    words = path.split(".")
    places = (".".join(words[:length]) for length in range(min(len(words) - 1, 4), 0, -1))
    place = next((place for place in places if general(place) in TABLES and place != path), "")
    name = words[place.count(".") + 1 if place else 0]
    if not place:
        tables = [f"[{table}]" for table in TABLES if "." not in table]
        known = nearest(f"[{name}]", tables) or f"known tables: {', '.join(tables)}"
        return ConfigError(f"unknown table [{cut(name)}]", known)
    keys = _within(general(place))
    parts = [f"[{place}.{part}]" for part, table in PARTS.items() if part in keys and name in table.model_fields]
    known = f"it is a key of {' and '.join(parts)}" if parts else f"known keys: {', '.join(sorted(keys))}"
    return ConfigError(f"[{place}] has no {cut(name)!r}", (None if parts else nearest(name, keys)) or known)
