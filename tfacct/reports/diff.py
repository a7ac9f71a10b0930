"""Two models, or one before and after a change, line by line: old → new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tfacct.accounts.metrics import METRICS, STEP_METRICS, Metric, Point
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option, spelled
from tfacct.ledger import paths
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Amount, Column, Kind, Report, Row, Table
from tfacct.reports import compose, conventions, counting, sentences
from tfacct.reports import latent_attention as latent
from tfacct.reports.counting import WEIGHED, Counting

TOTALS = {
    "total_flops": "total FLOPs",
    "flops_per_token": "FLOPs per token",
    "total_params": "parameters",
    "active_params": "active parameters",
    "weights_bytes": "weights",
    "kv_cache_bytes": "KV cache",
    "total_bytes": "weights + KV cache",
}
"""Metrics below the lines, and their labels."""
OF_STEP = {
    "saved_bytes": "saved for backward",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer state",
    "peak_bytes": "peak",
}
"""Those of a training step, after these."""
ANSWERED = ("total_flops", "total_params", "weights_bytes", "kv_cache_bytes", "peak_bytes")
"""Those that the answer names; the weights where they do not change as the parameters do."""
CHANGE_FLOPS = (("recompute", "none"), ("lora", ""))
"""Fields of a recipe, with what they are by default, that change the FLOPs that run, but not the total."""
FULL_TRAINING = "FLOPs are those of training all weights without recomputation, whatever the recipe."
SHARES = ("old_share", "new_share")
"""Shares of a line in all FLOPs, or in all parameters, of either side."""
UNITS = {"flops": "FLOPs", "params": "params", "bytes": "bytes"}


def diff(
    old: LoadedModel,
    new: LoadedModel,
    before: Request,
    after: Request,
    *,
    terms: Counting | None = None,
    to: Counting | None = None,
    every: bool = False,
) -> Report:
    """FLOPs and parameters of every line, and the totals in FLOPs and bytes, of two models, workloads or dtypes.

    `to` is how the new side is counted. The table holds the rows that change, or `every` one. Raises UsageError where
    nothing could change.
    """
    terms = terms or Counting()
    to = to or terms
    unknown = counting.unweighed([old], terms.dtype) | counting.unweighed([new], to.dtype)
    metrics = [METRICS[name] for name in TOTALS if not (unknown and name in WEIGHED)]
    works = counting.workload(old, before), counting.workload(new, after)
    untrained = _untrained(((old, works[0], terms), (new, works[1], to)))
    if terms.train and not untrained:
        metrics += STEP_METRICS.values()
    to.check_recipe(metrics, option("train"))
    points = [terms.point(old, works[0], metrics), to.point(new, works[1], metrics)]
    stored, alike = conventions.dtypes([old, new], terms, to), terms.trained == to.trained
    if old.raw == new.raw and works[0] == works[1] and max(map(len, stored)) == 1 and alike:
        raise UsageError(
            f"nothing changes: both sides are {compose.name_of(old)} at the same workload",
            f"{spelled('change a field with --set', 'set a field by its name')}, list two values, such as"
            f" {option('ctx', '1k,16k')} or {option('dtype', 'bf16,fp8')}, or name a second model",
        )
    kept = sentences.kept([old, new])
    names_of = {name: said.replace("KV cache", kept) for name, said in TOTALS.items()} | OF_STEP
    flops, params, totals = _by_line(*points), _by_tensor(*points), _totals(metrics, *points)
    shown = [lines if every else [line for line in lines if _delta(line)] for lines in (flops, params, totals)]
    if not any(shown):
        shown = [[], [], totals]

    recipes = [dict(one.trained) for one in (terms, to)]
    other_flops = terms.train and any(
        len({one.get(name) or usual for one in recipes}) > 1 for name, usual in CHANGE_FLOPS
    )

    def notes(_: slice) -> list[str]:
        return [
            *([FULL_TRAINING] if other_flops else []),
            *conventions.of_models([old, new], metrics, terms, to),
            *(f"The bytes of the weights are left out ({name}: {said})." for name, said in unknown.items()),
            *(f"Bytes of a training step are left out: {why}." for why in untrained),
            *(conventions.of_windows([new], metrics, masked=terms.masked) if old.family == new.family else ()),
            *latent.notes([(old, points[0].work), (new, points[1].work)], metrics, masked=terms.masked),
        ]

    return compose.report(
        "diff",
        [old, new],
        _table(shown, names_of),
        [
            {
                "model": compose.name_of(new),
                "old_side": _side(old, points[0], terms, metrics, weighed=not unknown),
                "new_side": _side(new, points[1], to, metrics, weighed=not unknown),
                "lines": [_facts(line) | dict(zip(SHARES, line["shares"], strict=True)) for line in (*flops, *params)],
                "totals": [_facts(line) for line in totals],
                "left_out": [*(WEIGHED if unknown else ()), *(STEP_METRICS if untrained else ())],
            }
        ],
        title=_title(old, new, before, after) + _stored(stored, kept) + _recipe(old, new, terms, to, metrics),
        convention=conventions.convention(metrics),
        answer=_answer(totals, names_of, with_flops=not other_flops),
        notes=notes,
        of_table=_hidden(sum(map(len, (flops, params, totals))) - sum(map(len, shown))),
        counted=conventions.counted([old, new], metrics, terms, before, to),
        details=lambda _: conventions.counted_at_length([old, new], metrics, terms, before, to),
        requests=[before, after],
        defaults=[old] if old.defaulted == new.defaulted else [old, new],
    )


def _untrained(sides: Sequence[tuple[LoadedModel, Workload, Counting]]) -> list[str]:
    """Models of a training step whose bytes are not counted, and why. Raises UsageError where a recipe was named."""
    if not sides[0][2].train:
        return []
    found = {subject.name: (terms, terms.untrained(subject, work)) for subject, work, terms in sides}
    reasons: dict[str, list[str]] = {}
    for name, (terms, refused) in found.items():
        if refused is not None and terms.trained:
            raise UsageError(f"{name}: {refused[0]}", refused[1])
        if refused is not None:
            reasons.setdefault(refused[0], []).append(name)
    return [f"{', '.join(names)}: {why}" for why, names in reasons.items()]


def _recipe(old: LoadedModel, new: LoadedModel, terms: Counting, to: Counting, metrics: Sequence[Metric]) -> str:
    """What of the recipe changes, after a title."""
    if not any(metric.of_step for metric in metrics):
        return ""
    changed = terms.recipe.for_model(old).changes(to.recipe.for_model(new))
    return "".join(f"{'; ' if not number else ', '}{words}" for number, words in enumerate(changed))


def _side(
    subject: LoadedModel, point: Point, terms: Counting, metrics: Sequence[Metric], *, weighed: bool
) -> dict[str, Any]:
    weights = point.weights.name if weighed else None
    facts = {**compose.facts_of(subject), **terms.facts(subject, point.work, weights)}
    facts |= terms.recipe_facts(metrics, subject)
    return {**facts, **latent.facts(subject, point)}


def _hidden(count: int) -> list[str]:
    """Says how many rows a table goes without."""
    rows = "row" if count == 1 else "rows"
    return [f"({count:,} {rows} unchanged: {option('all', True)} shows {'it' if count == 1 else 'them'})"][
        : min(count, 1)
    ]


def _table(sections: Sequence[Sequence[Mapping[str, Any]]], names: Mapping[str, str]) -> Table:
    columns = (
        Column("what", "what"),
        Column("unit", "", drop=3),
        Column("old", "old", "amount", empty="–"),
        Column("new", "new", "amount", empty="–"),
        Column("delta", "Δ", "amount", signed=True, empty="unchanged"),
        Column("change", "change", "change", drop=2, empty="new"),
        *((Column("share", "share", "shares", drop=3, keys=SHARES),) if any(sections[:-1]) else ()),
    )
    return columns, tuple(tuple(_row(line, names) for line in section) for section in sections if section), ()


def _stored(dtypes: Sequence[Sequence[str]], kept: str) -> str:
    """What of the storage changes, after a title."""
    both = zip(("weights", kept), map(" → ".join, dtypes), strict=True)
    changed = ", ".join(f"{what} {sides}" for what, sides in both if "→" in sides)
    return changed and f"; {changed}"


def _answer(totals: Sequence[Mapping[str, Any]], names: Mapping[str, str], *, with_flops: bool) -> str:
    """How the totals change, the most changed first; nothing of what neither side has. Without `with_flops`, FLOPs that
    do not change are not mentioned."""
    there = {line["path"]: line for line in totals if line["old"] or line["new"]}
    asked = [there[name] for name in ANSWERED if name in there]
    if len({_ratio(line) for line in asked if line["path"] in ("total_params", "weights_bytes")}) == 1:
        asked = [line for line in asked if line["path"] != "weights_bytes"]
    changed = sorted((line for line in asked if _delta(line)), key=_closeness)
    same = [names[line["path"]] for line in asked if not _delta(line) and (with_flops or line["path"] != "total_flops")]
    said = ", ".join(f"{names[line['path']]} {_change(line)}" for line in changed)
    parted = "; " if len(same) > 1 else ", "
    unchanged = f"{' and '.join(filter(None, (', '.join(same[:-1]), *same[-1:])))} unchanged" if same else ""
    return f"{_capital(parted.join(filter(None, (said, unchanged))))}."


def _ratio(line: Mapping[str, Any]) -> Fraction | None:
    return Fraction(line["new"] or 0) / line["old"] if line["old"] else None


def _closeness(line: Mapping[str, Any]) -> Fraction:
    """Smaller over larger side: 1 where nothing changed."""
    smaller, larger = sorted((Fraction(line["old"]), Fraction(line["new"])))
    return smaller / larger


def _change(line: Mapping[str, Any]) -> str:
    """`÷ 2`, `−0.3%`, or both sizes where one is zero."""
    if line["old"] and line["new"]:
        return units.change(Fraction(line["new"]) / line["old"])
    sized = Column("", "", line["kind"])
    return " → ".join(sized.text(line[side]) if line[side] else "0" for side in ("old", "new"))


def _capital(said: str) -> str:
    return said[:1].upper() + said[1:]


def _title(old: LoadedModel, new: LoadedModel, before: Request, after: Request) -> str:
    return " → ".join(_names(old, new, before, after))


def _names(old: LoadedModel, new: LoadedModel, before: Request, after: Request) -> tuple[str, ...]:
    """Both sides by name; the workload once, with the second side where it is another there."""
    asked = [compose.workload_words([subject], request) for subject, request in ((old, before), (new, after))]
    first, second = compose.name_of(old), compose.name_of(new)
    if asked[0] == asked[1] and first == second and old.raw == new.raw:
        return (f"{first}, {asked[0]}",)
    if asked[0] == asked[1]:
        return first, f"{second}, {asked[1]}"
    if first == second:
        return f"{first}: {asked[0]}", asked[1]
    return tuple(
        f"{name}{', ' if ' new token' in words else ' at '}{words}"
        for name, words in zip((first, second), asked, strict=True)
    )


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


def _totals(metrics: Sequence[Metric], old: Point, new: Point) -> list[dict[str, Any]]:
    lines = [{"path": m.name, "kind": m.unit, "old": m.of(old), "new": m.of(new)} for m in metrics]
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
    totals = sum(old.values()), sum(new.values())
    lines: list[dict[str, Any]] = []
    for path in paths:
        sides = old.get(path), new.get(path)
        shares = (None if count is None else Fraction(count, all_) for count, all_ in zip(sides, totals, strict=True))
        lines.append({"path": path, "kind": kind, "old": sides[0], "new": sides[1], "shares": tuple(shares)})
    return lines


def _delta(line: Mapping[str, Any]) -> Any:
    return (line["new"] or 0) - (line["old"] or 0)


def _row(line: Mapping[str, Any], totals: Mapping[str, str]) -> Row:
    old, new, kind = line["old"], line["new"], line["kind"]
    return {
        "what": totals.get(line["path"]) or paths.short(line["path"]),
        "unit": UNITS[kind],
        "old": None if old is None else Amount(old, kind),
        "new": None if new is None else Amount(new, kind),
        "delta": Amount(_delta(line), kind),
        "change": Fraction(_delta(line)) / old if old else None,
        "share": line.get("shares"),
    }


def _facts(line: Mapping[str, Any]) -> dict[str, Any]:
    return {"path": line["path"], "unit": line["kind"], "old": line["old"], "new": line["new"], "delta": _delta(line)}
