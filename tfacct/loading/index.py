"""A JSON index of the presets with the rows of `models`, so that listing presets parses no TOML.

An entry is only valid for the file contents that it was created from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from tfacct.base.record import record

FILE = "index.json"
"""Name of the index in the folder of presets; it is generated with the documentation."""


@record
class Listed:
    """A preset in a list, with the attributes that every report needs, and `facts` on its architecture and source."""

    name: str
    family: str
    defaulted: Mapping[str, Any]
    unknown: tuple[str, ...]
    left_out: tuple[str, ...]
    facts: Mapping[str, Any]
    answers: str = ""

    @property
    def changed(self) -> Mapping[str, Any]:
        """Empty: the index has no changed fields."""
        return {}

    @property
    def parameters(self) -> int:
        """Number of stored parameters."""
        return int(self.facts["total_params"])


class Entry(NamedTuple):
    """A preset in the index."""

    file: dict[str, Any]
    """The TOML file, parsed and checked."""
    listed: Listed


def entry(path: Path, data: bytes) -> Entry | None:
    """Entry of a preset; None if it is missing or was created from other contents than `data`."""
    made = _index(path.with_name(FILE)).get(path.stem)
    if made is None or made["digest"] != _digest(data):
        return None
    listed = {
        **made["listed"],
        "unknown": tuple(made["listed"]["unknown"]),
        "left_out": tuple(made["listed"]["left_out"]),
    }
    return Entry(made["file"], Listed(path.stem, **listed))


def text(entries: Iterable[tuple[bytes, Entry]]) -> str:
    """Text of the index, with one line per preset, from the contents and entry of each."""
    lines = []
    for data, (file, listed) in entries:
        fields = {name: getattr(listed, name) for name in ("family", "defaulted", "unknown", "left_out", "facts")}
        made = {"digest": _digest(data), "listed": fields, "file": file}
        lines.append(f"{json.dumps(listed.name)}: {json.dumps(made, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


@cache
def _index(path: Path) -> Mapping[str, Any]:
    """The index; empty if there is none, as in a checkout without generated documentation."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
