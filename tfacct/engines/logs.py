"""Start-up logs of engines: figures by name, read with the patterns of the engine's TOML. A hostile log is harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tfacct.base.errors import ConfigError, NotFoundError, UsageError, cut
from tfacct.base.spelling import option
from tfacct.engines.launch import WIDE, Flags, typed_flags
from tfacct.engines.profiles import GIB, MIB, Engine
from tfacct.loading import files
from tfacct.loading.model import LoadedModel

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


class Log(NamedTuple):
    """What a start-up log says: figures, and flags whose values are words, both by name."""

    figures: dict[str, Figure]
    words: dict[str, str]


def read(engine: Engine, path: str) -> Log:
    """The first figure and word of each name in a log, words without defaults. Raises TfacctError for a file without
    any figure."""
    found: dict[str, re.Match[str]] = {}
    patterns: Mapping[str, str] = engine.facts["log"]
    left = {name: re.compile(pattern, re.ASCII) for name, pattern in patterns.items()} | WORDS
    for line in _lines(path):
        found |= {name: match for name, pattern in left.items() if (match := pattern.search(line))}
        left = {name: pattern for name, pattern in left.items() if name not in found}
    if not patterns.keys() & found:
        raise UsageError(f"{option('log')} {cut(path)} has no start-up line of {engine.name}", "another engine's log?")
    words = {name: found[name][1] for name in WORDS if name in found}
    return Log(
        {name: _figure(found[name]) for name in patterns if name in found},
        {name: word for name, word in words.items() if word.lower() not in ("none", "auto", "false")},
    )


def _lines(path: str) -> list[str]:
    """Lines of a file, without colours. Raises NotFoundError."""
    try:
        text = files.read(Path(path)).decode("utf-8", "replace")
    except (ConfigError, ValueError) as error:  # ValueError: a name that no file can have
        why = error.message if isinstance(error, ConfigError) else f"cannot read {cut(path)}"
        raise NotFoundError(f"{option('log')}: {why}") from None
    return [STEERING.sub("", line[:LONGEST]) for line in text.splitlines()]


def _figure(match: re.Match[str]) -> Figure:
    """The figure of a match, in bytes where a unit follows it."""
    text = match["n"].replace(",", "")[:20]
    unit = UNITS.get(match.groupdict().get("unit") or "", 1)
    digits = len(text.partition(".")[2])
    return Figure(float(text) * unit, unit * 0.5 * 10.0**-digits if unit > 1 or digits else 0)


def flags(log: Log, model: LoadedModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are given, and those of a log in place of the others. Raises UsageError for a log of weights in
    another format than the model's."""
    typed, (figures, words) = typed_flags(given), log
    named: dict[str, Any] = {name: int(figures[name].value) for name in figures if name in Flags._fields}
    if "gpu_memory_utilization" in figures:
        named["gpu_memory_utilization"] = figures["gpu_memory_utilization"].value
    if "version" in figures:
        named["engine_version"] = f"0.{int(figures['version'].value)}"
    if "enforce_eager" in words:
        named["enforce_eager"] = True
    if "kv_cache_dtype" in words:
        named["kv_dtype"] = words["kv_cache_dtype"]
    method, stored = words.get("quantization"), model.storage(None).name
    if method is not None and "dtype" not in typed and stored in WIDE:
        if method != "fp8":
            why = f"the start of {option('log')} has quantization {cut(method)}, {model.name} has {stored}"
            raise UsageError(why, f"{option('dtype')} of its weights, or the config of its checkpoint")
        named["dtype"] = method
    return {**given, **named, **typed}
