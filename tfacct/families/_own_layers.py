"""The layers of an own model's side: which places of the file say something of a layer, and what they come to.

From the common tables to the side's, then its kind's, then those of every N-th layer, then those of the first N: what
comes later stands over what comes before, key by key, and a part in place of the part that it replaces.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from tfacct.base.complaints import format_value
from tfacct.base.errors import ConfigError, cut
from tfacct.families._own_names import WORD, Tables
from tfacct.families._own_tables import (
    ALONE,
    LISTED,
    MIXERS,
    NETWORKS,
    OF_A_SIDE,
    PARTS,
    PLACES,
    ModelTable,
    NormTable,
    SideTable,
    Table,
)
from tfacct.families.fields import MOST_LAYERS

NONE = "none"
"""The value that takes away what a table before it says."""


class Place(NamedTuple):
    """A table of the file that says something of a layer's parts: its dotted name, and theirs."""

    path: str
    parts: Mapping[str, Tables]

    def named(self, part: str) -> str:
        """Dotted name of a part's table."""
        return f"{self.path}.{part}" if self.path else part


Chain: TypeAlias = tuple[Place, ...]
"""Places that say something of a layer, the one that decides last."""


class Layers(NamedTuple):
    """The layers of a side: for each kind of block where it is said, and for each layer which kind it is.

    There are no layers where their number is none.
    """

    chains: list[Chain]
    each: list[int]

    def blocks(self) -> list[Tables]:
        """Tables of each kind of block."""
        return [merged(chain) for chain in self.chains]


def layers_of(tables: Tables, side: str) -> Layers:
    """The layers of a side. Raises ConfigError for a pattern that does not fit."""
    own, count = tables[side], tables[side].get("layers")
    here = (Place("", _parts(tables)), Place(side, _parts(own, *LISTED)))
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_LAYERS:
        return Layers([here], [])  # refused when the number is checked
    pattern = _pattern(tables, side, count)
    every, first = ({int(number): _parts(table) for number, table in own.get(name, {}).items()} for name in PLACES)
    listed = {name: _listed(own[name]) for name in LISTED if name in own}
    known: dict[Any, int] = {}
    chains: list[Chain] = []
    each = []
    for number in range(count):
        kind = pattern[number % len(pattern)] if pattern else None
        often = tuple(n for n in sorted(every) if (number + 1) % n == 0)
        ahead = tuple(n for n in sorted(first, reverse=True) if number < n)
        mixers = tuple(name for name, numbers in listed.items() if number in numbers)
        told = kind, often, ahead, mixers
        if told not in known:
            known[told] = len(chains)
            further = [Place(f"{side}.{kind}", _parts(own[kind]))] if kind in own else []
            further += [Place(f"{side}.every.{n}", every[n]) for n in often]
            further += [Place(f"{side}.first.{n}", first[n]) for n in ahead]
            chains.append((*here, *further, *(_of_listed(side, name, own[name]) for name in mixers)))
        each.append(known[told])
    return Layers(chains, each)


def _parts(table: Tables, *without: str) -> dict[str, Tables]:
    return {name: table[name] for name in PARTS if name in table and name not in without}


def _listed(mixer: Tables) -> set[int]:
    """Layers that `[decoder.mamba]` lists; what is no number is refused when they are checked."""
    given = mixer.get("layers")
    return {number for number in given if isinstance(number, int)} if isinstance(given, list) else set()


def _of_listed(side: str, name: str, mixer: Tables) -> Place:
    return Place(side, {name: {key: value for key, value in mixer.items() if key != "layers"}})


def _pattern(tables: Tables, side: str, count: int) -> list[str]:
    """Kinds of a side's layers, before they are repeated. Raises ConfigError."""
    own, key = tables[side], f"{side}.pattern"
    pattern = own.get("pattern")
    if pattern is None:
        return []
    if not isinstance(pattern, list) or not pattern:
        raise ConfigError(
            f"{key} must be a list of kinds, not {format_value(pattern)}", f'{key} = ["local", "local", "full"]'
        )
    for word in pattern:
        if not isinstance(word, str) or not WORD.fullmatch(word):
            raise ConfigError(f"{key}: {format_value(word)} is no word", f'{key} = ["local", "local", "full"]')
        if word in OF_A_SIDE:
            raise ConfigError(f"{key}: {word!r} is a key or table of [{side}]", "call the kind by another name")
    if len(pattern) > count:
        raise ConfigError(
            f"{key} names {len(pattern):,} layers, and {side}.layers is {count:,}",
            "a pattern is repeated, so a shorter one will do",
        )
    plain = [word for word in dict.fromkeys(pattern) if not own.get(word)]
    none = len(plain) == len(set(pattern))
    if none or len(plain) > 1:
        have = "has no table" if len(plain) == 1 else "have no tables"
        raise ConfigError(
            f"{key}: {' and '.join(repr(cut(word)) for word in plain)} {have}, so {'all' if none else 'their'} layers"
            " are alike",
            f"say what differs, as in [{side}.{cut(plain[0])}.attention]; one kind may have none",
        )
    return pattern


def deciding(chain: Chain, group: Sequence[str]) -> tuple[Place, list[str]] | None:
    """The place that says which part of a group a layer has, and the parts that it names; None if no place does."""
    for place in reversed(chain):
        if names := [name for name in group if name in place.parts]:
            return place, names
    return None


def merged(chain: Chain) -> Tables:
    """The tables of a layer's parts: of mixers and of networks those that the last place names."""
    found: Tables = {}
    for group in (MIXERS, NETWORKS):
        decided = deciding(chain, group)
        for name in decided[1] if decided else ():
            keys: Tables = {}
            for place in chain:
                keys |= place.parts.get(name, {})
            found[name] = {key: value for key, value in keys.items() if not _taken_away(PARTS[name], key, value)}
    if any(name in ALONE and keys.get("network") is not True for name, keys in found.items()):
        return {name: keys for name, keys in found.items() if name in MIXERS}
    return found


def _taken_away(table: type[Table], key: str, value: Any) -> bool:
    """True for `none` where a key may be absent without a value."""
    field = table.model_fields.get(key)
    return value == NONE and field is not None and not field.is_required() and field.default is None


def where(chains: Mapping[str, Layers], loc: tuple[Any, ...]) -> str:
    """The place in the file that a checked key came from: the last that gives it, or else the first with its table."""
    side, *rest = loc
    if len(rest) < 3 or rest[0] != "blocks":
        return ".".join(map(str, loc))
    chain, part, *keys = chains[side].chains[rest[1]], *rest[2:]
    holding = [place for place in chain if part in place.parts]
    giving = [place for place in holding if keys and keys[0] in place.parts[part]]
    place = (giving or holding[:1])[-1]
    return ".".join(map(str, (place.named(part), *keys)))


def kind_named(chain: Chain) -> str:
    """Where a kind of block is told from its side's others: `[decoder.local]`; empty where it is not."""
    last = chain[-1].path
    return f"[{last}]" if "." in last else ""


def defaulted(
    model: ModelTable, norm: NormTable, sides: Mapping[str, SideTable], chains: Mapping[str, Layers]
) -> dict[str, Any]:
    """Keys that took a default which says something, by dotted name: where all blocks with the part agree, that of the
    first place which holds its table, else that of the side or of the last place that does."""
    found = {f"model.{key}": value for key, value in _unset(model) if _said(key, model, sides)}
    found |= {f"norm.{key}": value for key, value in _unset(norm)}
    told = [
        (side, chain, part, dict(_of_part(part, getattr(block, part), model)))
        for side, table in sides.items()
        for block, chain in zip(table.blocks, chains[side].chains, strict=True)
        for part in PARTS
        if getattr(block, part) is not None
    ]
    for side, chain, part, values in told:
        for key, value in values.items():
            alike = all(other.get(key) == value for _, _, name, other in told if name == part)
            holding = [place for place in chain if part in place.parts]
            home = holding[0] if alike else holding[-1]
            name = home.named(part) if home.path or alike or len(sides) < 2 else f"{side}.{part}"
            found[f"{name}.{key}"] = value
    return found


def _said(key: str, model: ModelTable, sides: Mapping[str, SideTable]) -> bool:
    """True if a default of the model's table says something of this model."""
    if key == "buckets":
        return model.positions == "relative"
    if key == "latent_attention":
        return any(block.latent_attention is not None for side in sides.values() for block in side.blocks)
    return True


def _of_part(part: str, table: Any, model: ModelTable) -> Iterator[tuple[str, Any]]:
    hidden = model.hidden
    yield from (said for said in _unset(table) if said[0] != "rotated" or model.positions == "rotary")
    if part == "attention" and table.head_dim is None and hidden % table.heads == 0:
        yield "head_dim", hidden // table.heads
    if part == "mamba" and table.rank is None:
        yield "rank", -(-hidden // 16)


def _unset(table: Table) -> Iterator[tuple[str, Any]]:
    for key in type(table).model_fields:
        value = getattr(table, key)
        if key not in table.model_fields_set and value is not None and key not in table.uncounted:
            yield key, value
