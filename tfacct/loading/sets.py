"""Fields of a config as they are typed: `--set FIELD=VALUE`, `--set FIELD=VALUES`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from tfacct.base import units
from tfacct.base.errors import UsageError


def read_sets(assignments: Iterable[str]) -> dict[str, Any]:
    """`FIELD=VALUE` pairs; a value is JSON where it can be, else text."""
    return {name: _value(text) for name, text in _assignments(assignments)}


def read_lists(assignments: Iterable[str], option: str = "--set") -> dict[str, Sequence[Any]]:
    """`FIELD=VALUES` pairs: a list `1,2,4`, a range `1..32`, or one value. Commas within brackets part nothing."""
    return {name: _list(f"{option} {name}", text) for name, text in _assignments(assignments, option)}


def _list(name: str, text: str) -> list[Any]:
    from tfacct.base import ranges

    pieces = [_values(name, piece) for piece in _pieces(text)]
    if (count := sum(map(len, pieces))) > ranges.MOST:
        raise UsageError(f"{name} has {count:,} values: at most {ranges.MOST:,}", ranges.FOR_MORE)
    return [value for piece in pieces for value in piece]


def _pieces(text: str) -> list[str]:
    """The text parted at its commas, but not within brackets."""
    pieces: list[list[str]] = []
    depth = 0
    for part in text.split(","):
        if depth > 0:
            pieces[-1].append(part)
        else:
            pieces.append([part])
        depth += sum(map(part.count, "[{")) - sum(map(part.count, "]}"))
    return [",".join(parts) for parts in pieces]


def _values(name: str, piece: str) -> Collection[Any]:
    from tfacct.base import ranges

    return ranges.read_values(name, piece) if ranges.is_range(piece) else [_value(piece)]


def _assignments(texts: Iterable[str], option: str = "--set") -> Iterator[tuple[str, str]]:
    """Names and what stands behind the `=`; no name twice."""
    seen: set[str] = set()
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"{option} needs FIELD=VALUE, not {text!r}", f"for example {option} num_key_value_heads=1")
        if name in seen:
            raise UsageError(f"{option} names {name} twice")
        seen.add(name)
        yield name, value


def _value(text: str) -> Any:
    """A value as JSON, a whole number as options take it (`16k`, `5e4`), or text."""
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if (isinstance(value, str) and text[:1].isdecimal()) or (isinstance(value, float) and "." not in text):
        with suppress(UsageError):
            return units.read_tokens("--set", text)
    return value
