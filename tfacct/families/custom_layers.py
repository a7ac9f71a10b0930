"""The layers of a side of a custom model: the tables of the file that describe a layer, merged.

The common tables come first, then those of the side, of the layer's kind, of every N-th layer, of the first N layers.
A later table replaces keys of an earlier one; a later attention, mixer or MLP replaces another.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from tfacct.base.errors import ConfigError, cut
from tfacct.base.pydantic_messages import format_value
from tfacct.families import custom_tables as tables
from tfacct.families.custom_tables import ModelTable, NormTable, SideTable
from tfacct.families.fields import MOST_LAYERS


class Place(NamedTuple):
    """A table of the file with tables of a layer's parts: its dotted name, and those tables."""

    path: str
    parts: Mapping[str, tables.Tables]

    def named(self, part: str) -> str:
        """Dotted name of a part's table."""
        return f"{self.path}.{part}" if self.path else part


Places: TypeAlias = tuple[Place, ...]
"""Places that describe a layer; the last one decides."""


class Layers(NamedTuple):
    """The places that describe each kind of layer of a side, and the kind of each layer; empty if their number is
    invalid."""

    kinds: list[Places]
    each: list[int]


def layers_of(given: tables.Tables, side: str) -> Layers:
    """The layers of a side. Raises ConfigError for a pattern that does not fit."""
    side_tables, count = given[side], given[side].get("layers")
    common = (Place("", _parts(given)), Place(side, _parts(side_tables, *tables.LISTED)))
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_LAYERS:
        return Layers([common], [])  # the error comes when the number is checked
    pattern = _pattern(side_tables, side, count)
    every, first = (
        {int(number): _parts(table) for number, table in side_tables.get(name, {}).items()} for name in tables.PLACES
    )
    listed = {name: _numbers(side_tables[name].get("layers")) for name in tables.LISTED if name in side_tables}
    kinds: dict[Any, Places] = {}
    of_each = []
    for number in range(count):
        kind = pattern[number % len(pattern)] if pattern else None
        often = tuple(n for n in sorted(every) if (number + 1) % n == 0)
        ahead = tuple(n for n in sorted(first, reverse=True) if number < n)
        mixers = tuple(name for name, numbers in listed.items() if number in numbers)
        of_each.append((kind, often, ahead, mixers))
        if of_each[-1] not in kinds:
            further = [Place(f"{side}.{kind}", _parts(side_tables[kind]))] if kind in side_tables else []
            further += [Place(f"{side}.every.{n}", every[n]) for n in often]
            further += [Place(f"{side}.first.{n}", first[n]) for n in ahead]
            for name in mixers:
                keys = {key: value for key, value in side_tables[name].items() if key != "layers"}
                further.append(Place(side, {name: keys}))
            kinds[of_each[-1]] = (*common, *further)
    numbers = {kind: number for number, kind in enumerate(kinds)}
    return Layers([*kinds.values()], [numbers[kind] for kind in of_each])


def _parts(table: tables.Tables, *without: str) -> dict[str, tables.Tables]:
    return {name: table[name] for name in tables.PARTS if name in table and name not in without}


def _numbers(listed: Any) -> set[int]:
    """Layers that a mixer's table lists; values that are not numbers raise an error when they are checked."""
    return {number for number in listed if isinstance(number, int)} if isinstance(listed, list) else set()


def _pattern(side_tables: tables.Tables, side: str, count: int) -> list[str]:
    """Kinds of a side's layers, before repetition. Raises ConfigError."""
    pattern, key = side_tables.get("pattern"), f"{side}.pattern"
    example = f'{key} = ["local", "local", "full"]'
    if pattern is None:
        return []
    if not isinstance(pattern, list) or not pattern:
        raise ConfigError(f"{key} must be a list of kinds, not {format_value(pattern)}", example)
    for word in pattern:
        if not isinstance(word, str) or not tables.WORD.fullmatch(word):
            raise ConfigError(f"{key}: {format_value(word)} is not a word", example)
        if word in tables.OF_A_SIDE:
            raise ConfigError(f"{key}: {word!r} is a key or table of [{side}]", "use another name for this kind")
    if len(pattern) > count:
        raise ConfigError(
            f"{key} names {len(pattern):,} layers, and {side}.layers is {count:,}",
            "patterns repeat, so use a shorter one",
        )
    plain = [word for word in dict.fromkeys(pattern) if not side_tables.get(word)]
    none = len(plain) == len(set(pattern))
    if none or len(plain) > 1:
        have = "has no table" if len(plain) == 1 else "have no tables"
        raise ConfigError(
            f"{key}: {' and '.join(repr(cut(word)) for word in plain)} {have}, so {'all' if none else 'their'} layers"
            " are identical",
            f"define what differs, as in [{side}.{cut(plain[0])}.attention]; one kind may have no table",
        )
    return pattern


def deciding(places: Places, group: Sequence[str]) -> tuple[Place, list[str]] | None:
    """The place that determines which part of a group a layer has, and the parts in it; None if there is none."""
    found = ((place, [name for name in group if name in place.parts]) for place in reversed(places))
    return next(((place, parts) for place, parts in found if parts), None)


def merged(places: Places) -> tables.Tables:
    """The tables of a layer's parts."""
    found: tables.Tables = {}
    for group in (tables.MIXERS, tables.MLPS):
        decided = deciding(places, group)
        for name in decided[1] if decided else ():
            keys = {key: value for place in places for key, value in place.parts.get(name, {}).items()}
            found[name] = {key: value for key, value in keys.items() if not _taken_away(tables.PARTS[name], key, value)}
    if any(name in tables.WITHOUT_MLP and keys.get("mlp") is not True for name, keys in found.items()):
        return {name: keys for name, keys in found.items() if name in tables.MIXERS}
    return found


def _taken_away(table: type[tables.Table], key: str, value: Any) -> bool:
    """True for `none`, which removes the value of an earlier table, if the key may be absent."""
    field = table.model_fields.get(key)
    return value == "none" and field is not None and not field.is_required() and field.default is None


def where(layers: Mapping[str, Layers], loc: tuple[Any, ...]) -> str:
    """The place in the file of a checked key: the last one that gives it, or else the first with its table."""
    side, *rest = loc
    if len(rest) < 3 or rest[0] != "blocks":
        return ".".join(map(str, loc))
    part, *keys = rest[2:]
    holding = [place for place in layers[side].kinds[rest[1]] if part in place.parts]
    giving = [place for place in holding if keys and keys[0] in place.parts[part]]
    return ".".join(map(str, ((giving or holding[:1])[-1].named(part), *keys)))


def kind_named(places: Places) -> str:
    """The table that describes only this kind of layer, `[decoder.local]`; empty if there is none."""
    last = places[-1].path
    return f"[{last}]" if "." in last else ""


def defaulted(
    model: ModelTable, norm: NormTable, sides: Mapping[str, SideTable], layers: Mapping[str, Layers]
) -> dict[str, Any]:
    """Keys with meaningful default values, by dotted name. If all layers with the part agree, this is the name in the
    first place with the table, else in the side or the last place with it."""
    blocks = [block for side in sides.values() for block in side.blocks]
    idle = {"buckets"} if model.positions != "relative" else set()
    idle |= {"latent_attention"} if all(block.latent_attention is None for block in blocks) else set()
    found = {f"model.{key}": value for key, value in _unset(model) if key not in idle}
    found |= {f"norm.{key}": value for key, value in _unset(norm)}
    given = [
        (side, places, part, dict(_of_part(part, getattr(block, part), model)))
        for side, table in sides.items()
        for block, places in zip(table.blocks, layers[side].kinds, strict=True)
        for part in tables.PARTS
        if getattr(block, part) is not None
    ]
    for side, places, part, values in given:
        for key, value in values.items():
            alike = all(other.get(key) == value for _, _, name, other in given if name == part)
            home = [place for place in places if part in place.parts][0 if alike else -1]
            name = home.named(part) if home.path or alike or len(sides) < 2 else f"{side}.{part}"
            found[f"{name}.{key}"] = value
    return found


def _of_part(part: str, table: Any, model: ModelTable) -> Iterator[tuple[str, Any]]:
    yield from (unset for unset in _unset(table) if unset[0] != "rotated" or model.positions == "rotary")
    if part == "attention" and table.head_dim is None and model.hidden % table.heads == 0:
        yield "head_dim", model.hidden // table.heads
    if part == "mamba" and table.rank is None:
        yield "rank", -(-model.hidden // 16)


def _unset(table: tables.Table) -> Iterator[tuple[str, Any]]:
    for key in type(table).model_fields:
        value = getattr(table, key)
        if key not in table.model_fields_set and value is not None and key not in tables.REFERENCE_ONLY:
            yield key, value
