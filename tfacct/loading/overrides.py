"""Parsing of `--set FIELD=VALUE` and `--set FIELD=VALUES`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option


def read_overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """Parse `FIELD=VALUE` pairs; values are JSON if valid, else text. Raises UsageError."""
    return {name: _value(text) for name, text in _assignments(assignments)}


def read_override_lists(assignments: Iterable[str], name: str = "sets") -> dict[str, Sequence[Any]]:
    """Parse `FIELD=VALUES` pairs: a list `1,2,4`, a range `1..32`, or one value. Commas in brackets do not separate."""
    return {field: _list(f"{option(name)} {field}", text) for field, text in _assignments(assignments, name)}


def _list(name: str, text: str) -> list[Any]:
    from tfacct.base import ranges

    pieces = [_values(name, piece) for piece in _pieces(text)]
    if (count := sum(map(len, pieces))) > ranges.MOST:
        raise UsageError(f"{name} has {count:,} values; the maximum is {ranges.MOST:,}", ranges.FOR_MORE)
    return [value for piece in pieces for value in piece]


def _pieces(text: str) -> list[str]:
    """Text split at commas outside brackets."""
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


def _assignments(texts: Iterable[str], name: str = "sets") -> Iterator[tuple[str, str]]:
    """Names and values of assignments, without duplicates."""
    seen: set[str] = set()
    for text in (piece for one in texts for piece in _apart(one)):
        field, equals, value = text.partition("=")
        field = field.strip()
        if not equals or not field:
            example = f"for example {option(name)} num_key_value_heads=1"
            raise UsageError(f"{option(name)} must be FIELD=VALUE, not {text!r}", example)
        if field in seen:
            raise UsageError(f"{option(name)} sets {field} twice")
        seen.add(field)
        yield field, value


def _apart(text: str) -> list[str]:
    """`A=1,B=2` as two assignments; a text with another comma as it is."""
    pieces = re.split(r",(?=[A-Za-z_][\w.]*=)", text)
    return [text] if any("," in piece for piece in pieces) else pieces


def _value(text: str) -> Any:
    """Value from JSON, a whole number such as `16k` or `5e4`, or text."""
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None if text == "None" else text
    if "," in text:  # separates values in `sweep`
        return value
    if (isinstance(value, str) and text[:1].isdecimal()) or (isinstance(value, float) and "." not in text):
        with suppress(UsageError):
            return units.read_tokens(option("sets"), text)
    return value
