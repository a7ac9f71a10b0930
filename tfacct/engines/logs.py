"""Start-up logs of engines: figures by name, read with the patterns of the engine's TOML. A hostile log is harmless."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tfacct.base.errors import NotFoundError, UsageError, cut
from tfacct.base.spelling import option
from tfacct.engines.profiles import Engine
from tfacct.engines.units import GIB, MIB

LARGEST = 8_000_000
"""Bytes of a log that are read, from its beginning: a start-up is in the first thousand lines."""
LONGEST = 8_000
"""Characters of a line that are read."""
STEERING = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
"""Sequences that colour a terminal."""
UNITS = {"GiB": GIB, "MiB": MIB, "GB": GIB, "MB": MIB}
"""Units of logs in bytes; engines write GB of GiB."""

WORDS = {
    name: re.compile(rf"(?<![a-z_]){name}['\"]? ?[=:] ?['\"]?([A-Za-z][\w.-]{{0,30}})", re.ASCII)
    for name in ("kv_cache_dtype", "quantization", "enforce_eager")
}
"""Flags whose values are words."""


class Figure(NamedTuple):
    """A figure of a log: bytes, or a number; `rounding`: half of its last digit."""

    value: float
    rounding: float


def read(engine: Engine, path: str) -> dict[str, Figure]:
    """Figures of a log by name: the first of each. Raises TfacctError for a file without any."""
    patterns: Mapping[str, str] = engine.facts["log"]
    found: dict[str, Figure] = {}
    left = {name: re.compile(pattern, re.ASCII) for name, pattern in patterns.items()}
    for line in _lines(Path(path)):
        matches = {name: match for name, pattern in left.items() if (match := pattern.search(line))}
        found |= {name: _figure(match) for name, match in matches.items()}
        left = {name: pattern for name, pattern in left.items() if name not in matches}
    if not found:
        raise UsageError(f"{option('log')} {cut(path)} has no start-up line of {engine.name}", "another engine's log?")
    return found


def _lines(path: Path) -> list[str]:
    """Lines of a file, without colours. Raises NotFoundError."""
    try:
        exists = path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        exists = False
    if not exists:
        raise NotFoundError(f"{option('log')} {cut(str(path))} is no file")
    try:
        with path.open("rb") as stream:
            text = stream.read(LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it cannot be read"
        raise NotFoundError(f"{option('log')} {cut(str(path))}: {why}") from None
    return [STEERING.sub("", line[:LONGEST]) for line in text.splitlines()]


def _figure(match: re.Match[str]) -> Figure:
    """The figure of a match, in bytes where a unit follows it."""
    text = match["n"].replace(",", "")[:20]
    unit = UNITS.get(match.groupdict().get("unit") or "", 1)
    digits = len(text.partition(".")[2])
    return Figure(float(text) * unit, unit * 0.5 * 10.0**-digits if unit > 1 or digits else 0)


def flags(found: Mapping[str, Figure]) -> dict[str, Any]:
    """Flags that a log names, as the command takes them."""
    whole = ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "tp", "pp", "block_size")
    named: dict[str, Any] = {name: int(found[name].value) for name in whole if name in found}
    if "gpu_memory_utilization" in found:
        named["gpu_memory_utilization"] = found["gpu_memory_utilization"].value
    if "total_memory" in found:
        named["total_memory"] = int(found["total_memory"].value)
    if "version" in found:
        named["engine_version"] = f"0.{int(found['version'].value)}"
    return named


def words(path: str) -> dict[str, str]:
    """Flags of a log whose values are words, but for the defaults: the first of each. Raises NotFoundError."""
    found: dict[str, str] = {}
    for line in _lines(Path(path)):
        matches = {name: match for name, pattern in WORDS.items() if (match := pattern.search(line))}
        found = {name: match[1] for name, match in matches.items()} | found
    return {name: value for name, value in found.items() if value.lower() not in ("none", "auto", "false")}
