"""Readers of JSON and TOML files from users, with limits on size, depth and types."""

from __future__ import annotations

import os
import stat
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfacct.base.errors import ConfigError, cut

if TYPE_CHECKING:
    import json

LARGEST = 4_000_000
"""Most bytes. A config.json has a few thousand, or three million if it lists every quantized matrix."""
DEEPEST = 32
"""Most levels of nesting; published configs have five."""
BITS = 400
"""Most bits of a whole number; some tokenizers write 10³⁰ for no limit."""
READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags to open a file of a user, without waiting: some files in /proc block."""
DOTS = 5_000_000
"""Largest sum of squared numbers of dots in the lines of a TOML file, which bounds the time to parse dotted keys."""


def packaged(name: str) -> Path:
    """The folder `name` of the repository: packed into an installed package, or next to the package in a checkout."""
    package = Path(__file__).parent.parent
    packed = package / f"_{name}"
    return packed if packed.is_dir() else package.parent / name


def read(file: Path) -> bytes:
    """Bytes of a regular file, at most one more than LARGEST. Raises ConfigError."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            what = "it is a folder" if file.is_dir() else "it is not a regular file"
            raise ConfigError(f"cannot read {file}: {what}", "give a file, a folder with a config.json, or - for stdin")
        with os.fdopen(os.open(file, READ), "rb") as stream:
            data: bytes | None = stream.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    if data is None:
        raise ConfigError(f"cannot read {file}: it has no data")
    return data


def read_stdin() -> bytes:
    """Bytes of standard input, at most one more than LARGEST. Raises ConfigError."""
    try:
        return sys.stdin.buffer.read(LARGEST + 1)
    except (AttributeError, OSError, ValueError):  # closed
        raise ConfigError("cannot read standard input: it is closed") from None


def parse_json(where: str, data: bytes) -> dict[str, Any]:
    """Fields of a config.json. Raises ConfigError that starts with `where`."""
    import json

    if not data.strip():
        raise ConfigError(f"{where} is empty", "it should contain the config.json of a model")

    def loads(text: str) -> Any:
        try:
            return json.loads(text, object_pairs_hook=unique_keys)
        except KeyError as error:
            raise ConfigError(f"field {cut(str(error.args[0]))!r} appears twice") from None
        except json.JSONDecodeError as error:
            raise ConfigError(f"{where} is not JSON: {json_fault(error)}") from None

    config = _parsed(where, data, loads)
    if not isinstance(config, dict):
        raise ConfigError(f"{where} is a JSON {type(config).__name__}, not an object with fields")
    return config


def json_fault(error: json.JSONDecodeError) -> str:
    """Problem and place of a JSON error. (Some messages of json end in "at", some in a colon.)"""
    what = error.msg.removesuffix(" at").rstrip(": ")
    return f"{what[:1].lower()}{what[1:]} at line {error.lineno:,}, column {error.colno:,}"


def parse_toml(where: str, data: bytes) -> dict[str, Any]:
    """Tables of a TOML file. Raises ConfigError that starts with `where`."""

    def loads(text: str) -> Any:
        if sum(line.count(".") ** 2 for line in text.split("\n")) > DOTS:
            raise RecursionError
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{where} is not TOML: {cut(str(error), 160)}") from None

    config: dict[str, Any] = _parsed(where, data, loads)
    return config


def _parsed(where: str, data: bytes, loads: Callable[[str], Any]) -> Any:
    """Parsed content, checked for size, depth and types."""
    if len(data) > LARGEST:
        raise ConfigError(f"{where} is larger than 4 MB: a config is a few kilobytes")
    try:
        config = loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
        _check(config)
    except UnicodeDecodeError:
        raise ConfigError(f"{where} is not UTF-8 text") from None
    except ConfigError as error:
        message = error.message if error.message.startswith(where) else f"{where}: {error.message}"
        raise ConfigError(message) from None
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        raise ConfigError(f"{where} is not a model config: a number is too large, or the nesting too deep") from None
    return config


def _check(config: object) -> None:
    """Check for dates, huge numbers and deep nesting. Raises ConfigError, ValueError or RecursionError."""
    level, depth = [config], 0
    while level:
        if depth > DEEPEST:
            raise RecursionError
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, int):
                if value.bit_length() > BITS:
                    raise ValueError
            elif isinstance(value, (date, datetime, time)):
                raise ConfigError(f"dates are not allowed in a config: {value}")
        level, depth = inner, depth + 1


def unique_keys(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a JSON object. Raises KeyError with a name that it has twice."""
    fields = dict(items)
    if len(fields) < len(items):
        counts = Counter(name for name, _ in items)
        raise KeyError(next(name for name in counts if counts[name] > 1))
    return fields
