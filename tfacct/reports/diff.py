"""What changes between two models, or between one model and itself with a knob turned: old → new, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tfacct.errors import UsageError
from tfacct.metrics import METRICS, Point
from tfacct.report import Amount, Column, Kind, Report, Row
from tfacct.reports import _common as common
from tfacct.reports import _kinds as kinds
from tfacct.reports._points import CONVENTION, Terms
from tfacct.subject import Subject
from tfacct.workload import Request

TOTALS = {
    "total_flops": "total FLOPs",
    "flops_per_token": "FLOPs per token",
    "total_params": "parameters",
    "active_params": "active parameters",
    "weights_bytes": "weights",
    "kv_cache_bytes": "KV cache",
    "total_bytes": "weights + KV cache",
}
"""The metrics that stand below the lines, and what a table calls them."""
UNITS = {"flops": "FLOPs", "params": "params", "bytes": "bytes"}


def diff(old: Subject, new: Subject, before: Request, after: Request, *, terms: Terms | None = None) -> Report:
    """FLOPs and parameters of every line, and the totals in FLOPs and bytes, of two models or workloads.

    Lines that do not change say so. Raises UsageError where nothing could.
    """
    terms = terms or Terms()
    metrics = [METRICS[name] for name in TOTALS]
    try:
        there = common.workload(new, after)
    except UsageError as error:
        error.hint = "the new side's workload is --to-ctx, --to-tokens and --to-batch, else the old side's"
        raise
    points = [terms.point(old, common.workload(old, before), metrics), terms.point(new, there, metrics)]
    same_model = old.raw == new.raw
    if same_model and points[0].work == points[1].work:
        raise UsageError(
            f"nothing changes: both sides are {common.name_of(old)} at the same workload",
            "change a field with --set, the workload with --to-ctx, --to-batch or --to-tokens, or name a second model",
        )
    names = _names(old, new, before, after)
    names_of = {name: said.replace("KV cache", kinds.kept([old, new])) for name, said in TOTALS.items()}
    flops, params, totals = _by_line(*points), _by_tensor(*points), _totals(*points)
    shown = [flops, *([params] if any(line["old"] != line["new"] for line in params) else []), totals]
    return Report(
        command="diff",
        title=" → ".join(names),
        columns=(
            Column("what", "what"),
            Column("unit", "", drop=3),
            Column("old", "old", "amount", empty="–"),
            Column("new", "new", "amount", empty="–"),
            Column("delta", "Δ", "amount", signed=True, empty="unchanged"),
            Column("change", "Δ %", "share", drop=2, signed=True),
        ),
        sections=tuple(tuple(_row(line, names_of) for line in section) for section in shown),
        notes=(
            _times(totals, names_of),
            *terms.words([old, new], metrics, before.logits),
            *([] if params in shown else ["Every parameter is as it was."]),
            *(common.window_notes([new], masked=terms.masked) if old.family == new.family else ()),
            *common.defaulted_notes([old] if old.defaulted == new.defaulted else [old, new]),
        ),
        hints=(*_hints(old, new, before, after), *dict.fromkeys(common.unknown_hints([old, new]))),
        models=(
            {
                "model": common.name_of(new),
                "old": {**common.model_facts(old), **terms.facts(points[0].work)},
                "new": {**common.model_facts(new), **terms.facts(points[1].work)},
                "lines": [_facts(line) for line in (*flops, *params)],
                "totals": [_facts(line) for line in totals],
            },
        ),
        convention=CONVENTION,
    )


def _times(totals: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """How many times as much the new side is."""
    said = {line["path"]: f"× {float(Fraction(line['new']) / line['old']):.2f}" for line in totals if line["old"]}
    shown = ("total_flops", "total_params", "kv_cache_bytes", "total_bytes")
    return f"In all: {', '.join(f'{names[name]} {said[name]}' for name in shown if name in said)}."


def _names(old: Subject, new: Subject, before: Request, after: Request) -> tuple[str, str]:
    """Both sides by name; the workload once, with the second side where it is another there."""
    asked = [common.workload_words([subject], request) for subject, request in ((old, before), (new, after))]
    first, second = common.name_of(old), common.name_of(new)
    if asked[0] == asked[1]:
        return first, f"{second}, {asked[1]}"
    if first == second:
        return f"{first}: {asked[0]}", asked[1]
    return f"{first} at {asked[0]}", f"{second} at {asked[1]}"


def _hints(old: Subject, new: Subject, before: Request, after: Request) -> list[str]:
    return list(dict.fromkeys((*common.context_hints([old], before), *common.context_hints([new], after))))


def _by_line(old: Point, new: Point) -> list[dict[str, Any]]:
    """FLOPs of every product that either side has; of both passes in a training step."""
    return _pairs(_flops(old), _flops(new), kind="flops")


def _flops(point: Point) -> dict[str, int]:
    counted: dict[str, int] = {}
    for product in point.ledger.products(point.at, masked=point.masked):
        flops = product.forward + product.backward if point.train else product.forward
        counted[product.path] = counted.get(product.path, 0) + flops
    return counted


def _by_tensor(old: Point, new: Point) -> list[dict[str, Any]]:
    return _pairs(old.ledger.parameters(), new.ledger.parameters(), kind="params")


def _totals(old: Point, new: Point) -> list[dict[str, Any]]:
    lines = []
    for name in TOTALS:
        metric = METRICS[name]
        lines.append({"path": name, "kind": metric.unit, "old": metric.of(old), "new": metric.of(new)})
    by_path = {line["path"]: line for line in lines}
    stored, active = by_path["total_params"], by_path["active_params"]
    routed = any(stored[side] != active[side] for side in ("old", "new"))
    return lines if routed else [line for line in lines if line is not active]


def _pairs(old: Mapping[str, int], new: Mapping[str, int], kind: Kind) -> list[dict[str, Any]]:
    """Both sides by path, in the order of the old; what only the new has stands behind what it follows there."""
    paths, before = list(old), 0
    for path in new:
        if path not in old:
            paths.insert(before, path)
        before = paths.index(path) + 1
    return [{"path": path, "kind": kind, "old": old.get(path), "new": new.get(path)} for path in paths]


def _delta(line: Mapping[str, Any]) -> Any:
    return (line["new"] or 0) - (line["old"] or 0)


def _row(line: Mapping[str, Any], totals: Mapping[str, str]) -> Row:
    old, new, kind = line["old"], line["new"], line["kind"]
    return {
        "what": totals.get(line["path"]) or common.short(line["path"]),
        "unit": UNITS[kind],
        "old": None if old is None else Amount(old, kind),
        "new": None if new is None else Amount(new, kind),
        "delta": Amount(_delta(line), kind),
        "change": Fraction(_delta(line)) / old if old else None,
    }


def _facts(line: Mapping[str, Any]) -> dict[str, Any]:
    return {"path": line["path"], "unit": line["kind"], "old": line["old"], "new": line["new"], "delta": _delta(line)}
