"""Finds what a user calls MODEL: a preset, a path to a config.json or a preset's TOML, a hub id, or `-` for stdin."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfacct import presets
from tfacct.errors import ConfigError, NotFoundError, TfacctError, UsageError, nearest
from tfacct.subject import Provenance, Subject, subject

if TYPE_CHECKING:
    from tfacct.hub import Waiting

LARGEST_FILE = 1_000_000


def find(
    model: str,
    sets: Mapping[str, Any] | None = None,
    also: Iterable[str] = (),
    *,
    ask_hub: bool = True,
    waiting: Waiting | None = None,
) -> Subject:
    """The model that `model` names. Raises a TfacctError that says what would work, a name in `also` for one.

    `waiting` is called with what is waited for, should the hub take its time.
    """
    if model == "-":
        return subject("stdin", _parse("standard input", _read_stdin()), sets)
    if model in presets.names():
        return presets.load(model, sets)
    if not model.strip():
        raise NotFoundError(
            "the MODEL is empty", "`tfacct models` lists the presets; a path to a config.json works too"
        )
    path = Path(model)
    if _exists(path):
        file = path / "config.json" if path.is_dir() else path
        if file.suffix == ".toml":
            return presets.load_file(file, sets)
        return subject(_short_name(file), _parse(str(file), _read(file)), sets)
    if path.suffix in (".json", ".toml"):
        raise NotFoundError(f"no file {model!r} here", nearest(path.stem, presets.names()))
    if ask_hub and _looks_like_hub_id(model):
        return _from_hub(model, sets, waiting)
    raise NotFoundError(f"no preset or file named {model!r}", _suggestion(model, also))


def read_sets(assignments: Iterable[str]) -> dict[str, Any]:
    """`FIELD=VALUE` pairs; a value is JSON where it can be, else text."""
    return {name: _value(text) for name, text in _assignments(assignments)}


def read_lists(assignments: Iterable[str]) -> dict[str, Sequence[Any]]:
    """`FIELD=VALUES` pairs: a list `1,2,4`, a range `1..32`, or one value. Commas within brackets part nothing."""
    return {
        name: [value for piece in re.split(r",(?![^\[{]*[\]}])", text) for value in _values(name, piece)]
        for name, text in _assignments(assignments)
    }


def _values(name: str, piece: str) -> Iterable[Any]:
    from tfacct import ranges

    return ranges.read_values(f"--set {name}", piece) if ranges.is_range(piece) else [_value(piece)]


def _assignments(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names and what stands behind the `=`; no name twice."""
    seen: set[str] = set()
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"--set wants FIELD=VALUE, not {text!r}", "for example --set num_key_value_heads=1")
        if name in seen:
            raise UsageError(f"--set names {name} twice")
        seen.add(name)
        yield name, value


def _value(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _suggestion(model: str, also: Iterable[str]) -> str:
    close = nearest(model.rsplit("/", 1)[-1], [*presets.names(), *also])
    if model.count("/") > 1:  # a longer path, or the address of a page
        return " ".join(filter(None, (close, "a hub id is OWNER/NAME")))
    return close or "`tfacct models` lists the presets; a path to a config.json works too"


def _looks_like_hub_id(model: str) -> bool:
    """OWNER/NAME or OWNER/NAME@REVISION, well-formed or not, and no path that says it is one."""
    return model.partition("@")[0].count("/") == 1 and not model.startswith((".", "/", "~"))


def _from_hub(model: str, sets: Mapping[str, Any] | None, waiting: Waiting | None) -> Subject:
    """A model by its hub id. What goes wrong also names the preset that may be meant: it needs no network."""
    from tfacct import hub

    hub_id, revision = hub.read_id(model)
    try:
        copy = hub.fetch(hub_id, revision, largest=LARGEST_FILE, waiting=waiting or hub.unwatched)
    except TfacctError as error:
        close = nearest(hub_id.rsplit("/", 1)[-1], presets.names())
        error.hint = "; ".join(hint for hint in (error.hint, close) if hint) or None
        raise
    name = hub.name_of(hub_id, revision)
    try:
        fields = _parse(f"config.json of {name}", _read(copy.path))
    except ConfigError as error:
        error.hint = f"the hub's cache holds it as {copy.path}"
        raise
    source = Provenance(url=copy.page, kind="fetched" if copy.newest else "cached", revision=copy.commit)
    return subject(name, fields, sets, source)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a null byte in it
        return False


def _short_name(file: Path) -> str:
    """`config.json` is called by its folder."""
    return file.resolve().parent.name if file.name == "config.json" else file.name


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None


def _read_stdin() -> bytes:
    try:
        return sys.stdin.buffer.read(LARGEST_FILE + 1)
    except (AttributeError, OSError, ValueError):  # closed
        raise ConfigError("cannot read standard input: it is closed") from None


def _parse(where: str, data: bytes) -> dict[str, Any]:
    import json

    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{where} is larger than 1 MB: a config.json is a few kilobytes")
    if not data.strip():
        raise ConfigError(f"{where} is empty", "it should hold a model's config.json")
    try:
        config = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_no_duplicates)
    except UnicodeDecodeError:
        raise ConfigError(f"{where} is not text: a config.json is UTF-8") from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        raise ConfigError(f"{where} is not a config.json: its numbers or its nesting are absurd") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{where} holds a JSON {type(config).__name__}, not an object of fields")
    return config


def _no_duplicates(items: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(items)
    if len(fields) < len(items):
        keys = [key for key, _ in items]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"field {twice!r} stands twice")
    return fields
