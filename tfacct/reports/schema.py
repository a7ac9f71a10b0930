"""JSON Schemas of what the commands print with `--json`, read off the types of their reports.

They are written under docs/schema by `python docs/build.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from tfacct.output.answer import Answer
from tfacct.output.report import SCHEMA, Column, Report
from tfacct.reports import (
    budget,
    check,
    comms,
    compare,
    flops,
    formula,
    memory,
    mfu,
    models,
    params,
    plan,
    serve,
    solve,
    sweep,
    time,
    train,
    verify,
)

KINDS: Mapping[str, type[Answer]] = {
    "flops": flops.FlopsReport,
    "flops-generate": flops.GenerateReport,
    "flops-traffic": flops.TrafficReport,
    "params": params.ParamsReport,
    "memory": memory.MemoryReport,
    "kv": memory.KvReport,
    "formula": formula.FormulaReport,
    "compare": compare.CompareReport,
    "diff": compare.DiffReport,
    "sweep": sweep.SweepReport,
    "solve": solve.SolveReport,
    "verify": verify.VerifyReport,
    "verify-prove": verify.ProveReport,
    "train": train.TrainReport,
    "train-exact": train.ExactTrainReport,
    "comms": comms.CommsReport,
    "plan": plan.PlanReport,
    "mfu": mfu.MfuReport,
    "budget": budget.BudgetReport,
    "time": time.TimeReport,
    "time-train": time.TimeTrainReport,
    "serve": serve.ServeReport,
    "fit": memory.FitReport,
    "check": check.CheckReport,
    "checkpoint": check.CheckpointReport,
    "measure": mfu.MeasureReport,
    "models": models.ModelsReport,
    "show": models.ShowReport,
    "show-ledger": models.LedgerReport,
}
"""Reports by command; by an option too where it changes what is answered."""
TYPED = {
    "kv": "memory --kv",
    "fit": "memory --on all",
    "diff": "compare --by line",
    "comms": "plan",
    "show": "models",
    "show-ledger": "models --ledger",
    "checkpoint": "check",
    "measure": "mfu --run",
    "conventions": "help counting",
    "metrics": "help metrics",
    "options": "help options",
    "letters": "help letters",
    "schemas": "help schema",
}
"""The command of an answer, where its name is another."""
PAGES: Mapping[str, Mapping[str, Any]] = {
    "metrics": dict.fromkeys(("metric", "unit", "about"), str),
    "schemas": dict.fromkeys(("name", "about"), str),
    "conventions": dict.fromkeys(("topic", "meaning"), str),
    "options": dict.fromkeys(("group", "option", "about"), str),
    "letters": dict.fromkeys(("letter", "about", "of"), str),
    "devices": {
        "device": str,
        "bf16": int | None,
        "fp8": int | None,
        "memory_bytes": int,
        "memory_from": str,
        "torch_bytes": int | None,
        "torch_least_bytes": int | None,
        "torch_most_bytes": int | None,
        "torch_seen": str | None,
        "board_bytes": int | None,
        "board_from": str | None,
        "bandwidth": int,
        "link_bandwidth": int | None,
        "domain": int | None,
        "pcie": int | None,
        "node_network": int | None,
        "tdp": int | None,
        "read_from": str,
    },
}
"""Keys of the rows of commands that are about no model, and their types."""

SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}


def schema(name: str, *, closed: bool = False) -> dict[str, Any]:
    """JSON Schema of a command's answer. `closed` refuses keys that are not listed; a reader ignores them."""
    found = _Schema(closed)
    kind = KINDS.get(name)
    model = {"type": "object"} if kind is None else found.object(facts(kind))
    properties: dict[str, Any] = {
        "schema": {"const": SCHEMA},
        "command": {"const": name.partition("-")[0]},
        "answer": {"type": "string"},
        "convention": {"type": "string"},
        "models": {"type": "array", "items": model},
        "models_left_out": {"type": "array", "items": found.object({"model": str, "why": str})},
    }
    if name in PAGES:
        properties["models"]["maxItems"] = 0
        rows = found.object(PAGES[name])
        properties["rows"] = {"type": "array", "items": rows}
    about = (kind.__doc__ or "").strip() if kind else "A page that is about no model."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tfacct {TYPED.get(name) or name.replace('-', ' --')} --json",
        "description": f"{about} "
        "docs/json.md explains the keys. Later versions may add some: ignore what you do not know.",
        **found.whole(properties),
        **({"$defs": found.named} if found.named else {}),
    }


def of_options(command: str, declared: Iterable[tuple[str, Any, str, Any]]) -> dict[str, Any]:
    """JSON Schema of a command's options: of each its name in Python, type, help and default; `...` for no default."""
    found, properties, optional = _Schema(True), {}, set()
    for name, kind, about, default in declared:
        properties[name] = {**found.of(kind), "description": about}
        if default is not ...:
            properties[name]["default"] = default
            optional.add(name)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"options of tfacct {command}",
        **found.whole(properties, optional),
    }


def names() -> Report:
    """What `help schema NAME` is known for: each kind of answer, and what it is of."""
    rows = tuple(
        {"name": name, "about": (kind.__doc__ or "").strip().partition("\n")[0]} for name, kind in KINDS.items()
    )
    return Report(
        command="schemas",
        title="JSON Schemas of the commands' options and answers",
        columns=(Column("name", "name"), Column("about", "answer")),
        sections=(rows,),
        models=(),
        notes=("`tfacct help schema NAME` prints one.",),
    )


def facts(kind: type[Answer]) -> dict[str, Any]:
    """Types of a report's keys by name."""
    typed: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, Answer):
            own = get_annotations(base, eval_str=True)
            typed |= {key: hint for key, hint in own.items() if not key.startswith("_")}
            typed |= vars(base).get("_reserved", {})
    if kind._line is not None:
        typed["lines"] = list[kind._line]  # type: ignore[name-defined]
    return typed


class _Schema:
    """Types turned into schemas; objects with a name are collected."""

    def __init__(self, closed: bool) -> None:
        self.closed = closed
        self.named: dict[str, Any] = {}

    def whole(self, properties: dict[str, Any], optional: set[str] | frozenset[str] = frozenset()) -> dict[str, Any]:
        """Object with these properties, all of them required but the `optional` ones."""
        required = [key for key in properties if key not in optional]
        closed = {"additionalProperties": False} if self.closed else {}
        return {"type": "object", "required": required, "properties": properties, **closed}

    def object(self, typed: Mapping[str, Any], optional: set[str] | frozenset[str] = frozenset()) -> dict[str, Any]:
        """Object of keys with these types."""
        return self.whole({key: self.of(hint) for key, hint in typed.items()}, optional)

    def of(self, hint: Any) -> dict[str, Any]:
        """Schema of a type."""
        if hint is Any:
            return {}
        if hint in SCALARS:
            return {"type": SCALARS[hint]}
        if is_typeddict(hint):
            return self._typed_dict(hint)
        inner = get_args(hint)
        match get_origin(hint):
            case origin if origin is Literal:
                return {"enum": list(inner)}
            case origin if origin in (Union, UnionType):
                return self._union([self.of(one) for one in inner])
            case origin if origin in (list, Sequence, Collection):
                return {"type": "array", "items": self.of(inner[0])}
            case origin if origin in (dict, Mapping):
                return {"type": "object", "additionalProperties": self.of(inner[1])}
        raise TypeError(f"no schema of {hint!r}")

    def _union(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        if all(part.keys() == {"type"} for part in parts):
            return {"type": [part["type"] for part in parts]}
        if all(part.keys() == {"enum"} or part == {"type": "null"} for part in parts):
            return {"enum": [word for part in parts for word in part.get("enum", [None])]}
        return {"anyOf": parts}

    def _typed_dict(self, kind: Any) -> dict[str, Any]:
        if kind.__name__ not in self.named:
            self.named[kind.__name__] = {}
            hints = get_type_hints(kind, include_extras=True)
            optional = {key for key, hint in hints.items() if get_origin(hint) is NotRequired}
            plain = {key: get_args(hint)[0] if key in optional else hint for key, hint in hints.items()}
            self.named[kind.__name__] = {"description": kind.__doc__, **self.object(plain, optional)}
        return {"$ref": f"#/$defs/{kind.__name__}"}
