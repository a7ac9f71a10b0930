"""Start-up logs of engines: figures by name, read with the patterns of the engine's TOML. A hostile log is harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tfacct.base.errors import ConfigError, NotFoundError, UsageError, cut
from tfacct.base.spelling import option
from tfacct.engines.launch import WIDE, Flags, typed_flags
from tfacct.engines.profiles import GIB, MIB, Profile
from tfacct.loading import files
from tfacct.loading.model import LoadedModel

LONGEST = 8_000
"""Characters of a line that are read."""
STEERING = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
"""Sequences that colour a terminal."""
UNITS = {"GiB": GIB, "MiB": MIB, "GB": GIB, "MB": MIB}
"""Units of logs in bytes; engines write GB of GiB."""


class Figure(NamedTuple):
    """A figure of a log: bytes, or a number; `rounding`: half of its last digit."""

    value: float
    rounding: float


def read(engine: Profile, path: str) -> dict[str, Figure | str]:
    """The first figure or word of each name in the last start of a log; of flags, no words that are their defaults.
    Raises TfacctError for a file without any figure."""
    text, found = _text(path), dict[str, Figure | str]()
    *_, start = 0, *(match.start() for match in re.finditer(engine.get("first_line", "^"), text))
    text = text[start:]
    for name, pattern in engine["log"].items():
        if match := re.search(pattern, text, re.ASCII):
            word = match.groupdict().get("word")
            found[name] = _figure(match) if word is None else word
    if not any(isinstance(one, Figure) for one in found.values()):
        problem = f"{option('log')} {cut(path)} has no start-up line of {engine['name']}"
        raise UsageError(problem, "another engine's log?")
    return {name: one for name, one in found.items() if one not in ("None", "auto", "False")}


def _text(path: str) -> str:
    """A file without colours, its lines cut. Raises NotFoundError."""
    try:
        raw = files.read(Path(path))
    except (ConfigError, ValueError) as error:  # ValueError: a name that no file can have
        why = error.message if isinstance(error, ConfigError) else f"cannot read {cut(path)}"
        raise NotFoundError(f"{option('log')}: {why}") from None
    text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "replace")
    return "\n".join(STEERING.sub("", line[:LONGEST]) for line in text.splitlines())


def _figure(match: re.Match[str]) -> Figure:
    """The figure of a match, in bytes where a unit follows it."""
    text = match["n"].replace(",", "")[:20]
    unit = UNITS.get(match.groupdict().get("unit") or "", 1)
    digits = len(text.partition(".")[2])
    return Figure(float(text) * unit, unit * 0.5 * 10.0**-digits if unit > 1 or digits else 0)


def flags(log: Mapping[str, Figure | str], model: LoadedModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are given, and those of a log in place of the others. Raises UsageError for a log of weights in
    another format than the model's."""
    typed, stored = typed_flags(given), model.storage(None).name
    named: dict[str, Any] = {name: log[name] for name in Flags._fields if name in log}
    for name, figure in named.items():
        if isinstance(figure, Figure):
            named[name] = figure.value if name == "gpu_memory_utilization" else int(figure.value)
    if isinstance(version := log.get("version"), Figure):
        named["engine_version"] = f"0.{int(version.value)}"
    named |= {"enforce_eager": True} if "enforce_eager" in named else {}
    if "dtype" in typed or stored not in WIDE:  # the weights are as published, or as asked for
        named.pop("dtype", None)
    elif (method := named.get("dtype", "fp8")) != "fp8":
        why = f"the start of {option('log')} has quantization {cut(method)}, {model.name} has {stored}"
        raise UsageError(why, f"{option('dtype')} of its weights, or the config of its checkpoint")
    return {**given, **named, **typed}
