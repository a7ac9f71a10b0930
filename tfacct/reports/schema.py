"""JSON Schemas of the output of the commands with `--json`, from the types of their reports.

They are written under docs/schema by `python docs/build.py`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tfacct.output.answer import Answer
from tfacct.output.json_schema import Schema, facts
from tfacct.output.report import SCHEMA
from tfacct.reports import devices

MODULES = (
    *("flops", "params", "memory", "formula", "compare", "sweep", "solve", "verify", "train", "comms", "plan", "mfu"),
    *("budget", "time", "serve", "engine", "check", "models"),
)
"""Modules of `reports` whose answers are about models, in the order of the documentation."""
KINDS: Mapping[str, type[Answer]] = {
    kind._name: kind
    for module in (import_module(f"tfacct.reports.{name}") for name in MODULES)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Answer) and kind.__module__ == module.__name__
    if not kind.__subclasses__()
}
"""Reports by command, or by command and option if the option changes the answer."""
TYPED = {
    "kv": "memory --kv",
    "fit": "memory --on all",
    "diff": "compare --by line",
    "comms": "plan",
    "show": "models",
    "show-ledger": "models --ledger",
    "checkpoint": "check",
    "measure": "mfu --run",
    "serve-disaggregated": "serve --prefill-on",
    "conventions": "help counting",
    "metrics": "help metrics",
    "options": "help options",
    "axes": "help axes",
    "schemas": "help schema",
    "engines": "engine",
}
"""Answer → its command, if the names differ."""
PAGES: Mapping[str, Mapping[str, Any]] = {
    "metrics": dict.fromkeys(("metric", "unit", "about"), str),
    "schemas": dict.fromkeys(("name", "about"), str),
    "engines": {
        "engine": str,
        "versions": str,
        "error": float | None,
        "worst": float | None,
        "starts": int | None,
        "read": str,
    },
    "conventions": dict.fromkeys(("topic", "meaning"), str),
    "options": dict.fromkeys(("group", "option", "about"), str),
    "axes": dict.fromkeys(("axis", "about", "of"), str),
    "devices": {
        column.key: kind | None if column.empty else kind
        for column in (*devices.COLUMNS, *devices.ASIDE)
        for kind in (str if column.kind == "text" else int,)
    },
}
"""Keys and types of the rows of commands without a model."""


@cache
def meanings() -> Mapping[str, Any]:
    """Meanings of keys; under the name of a record, those that differ there."""
    return tomllib.loads(Path(__file__).with_name("keys.toml").read_text(encoding="utf-8"))


def meaning(record: str, key: str) -> str | None:
    """What a key of a record means; None if its name says it."""
    found = meanings().get(record, {}).get(key) or meanings().get(key)
    return None if found is None else str(found)


def schema(name: str, *, closed: bool = False) -> dict[str, Any]:
    """JSON Schema of a command's answer. `closed` refuses keys that are not listed; a reader ignores them."""
    found = Schema(closed, meaning)
    kind = KINDS.get(name)
    model = {"type": "object"} if kind is None else found.object(facts(kind), record=kind.__name__)
    properties: dict[str, Any] = {
        "schema": {"const": SCHEMA},
        "command": {"const": name},
        "answer": {"type": "string"},
        "convention": {"type": "string"},
        "models": {"type": "array", "items": model},
        "models_skipped": {"type": "array", "items": found.object({"model": str, "why": str})},
    }
    if name in PAGES:
        properties["models"]["maxItems"] = 0
        rows = found.object(PAGES[name], record=f"{name}_rows")
        properties["rows"] = {"type": "array", "items": rows}
    about = " ".join(str(kind.__doc__).split()) if kind else "An answer that is not about a model."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tfacct {TYPED.get(name) or name.replace('-', ' --')} --json",
        "description": f"{about} docs/json.md explains the keys. Later versions may add keys: ignore unknown ones.",
        **found.with_keys(properties),
        **({"$defs": found.named} if found.named else {}),
    }


def of_options(command: str, declared: Iterable[tuple[str, Any, str, Any]]) -> dict[str, Any]:
    """JSON Schema of a command's options: Python name, type, help and default of each; `...` for no default."""
    found, properties, optional = Schema(True), {}, set()
    for name, kind, about, default in declared:
        properties[name] = {**found.of(kind), "description": about}
        if default is not ...:
            properties[name]["default"] = default
            optional.add(name)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"options of tfacct {command}",
        **found.with_keys(properties, optional),
    }
