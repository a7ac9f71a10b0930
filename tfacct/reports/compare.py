"""Several models, or one at several contexts or dtypes, side by side: the numbers that a choice is made by.

Each is the number that `params`, `memory` and `flops` give. Two sides line by line are the report `diff`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import log
from typing import Any, NamedTuple

from tfacct.accounts.metrics import METRICS, Metric, metric
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.record import record
from tfacct.ledger.workload import Request
from tfacct.loading.model import LoadedModel
from tfacct.loading.where import MemoryLimit
from tfacct.output.report import Amount, Cell, Column, Kind, NoteRow, Report, Row, Table, notes
from tfacct.parallel.mesh import Mesh
from tfacct.reports import compose, counting, sentences
from tfacct.reports.counting import ASSUMED, Counting
from tfacct.reports.memory import memory

WIDE = 6
"""Sides above which each is a row, not a column."""
ALIKE = Fraction(1, 1000)
"""Relative difference of two numbers that the answer calls alike."""


class Measure(NamedTuple):
    """A row of the table: a metric of a prefill, or of one new token. `noun`: its name in the answer, which names the
    largest difference of each `group`."""

    key: str
    metric: str
    label: str
    noun: str
    group: str
    decode: bool = False


MEASURES = (
    Measure("total_params", "total_params", "parameters", "parameters", "size"),
    Measure("active_params", "active_params", "active parameters", "active parameters", "size"),
    Measure("weights_bytes", "weights_bytes", "weights{stored}", "bytes of weights", "size"),
    Measure("kv_bytes_per_token", "kv_bytes_per_token", "KV cache per token", "KV cache per token", "cache"),
    Measure("kv_cache_bytes", "kv_cache_bytes", "KV cache of {ctx}", "KV cache", "cache"),
    Measure("prefill_flops", "total_flops", "FLOPs, prefill of {ctx}", "prefill FLOPs", "compute"),
    Measure("flops_per_new_token", "flops_per_token", "FLOPs per new token", "decode FLOPs", "compute", decode=True),
)
REQUESTS = "requests"
NOTES = (
    NoteRow("unsupported", 1, lambda found: found["unsupported"]),
    NoteRow("assumed", 2, lambda found: found["assumed"], "bf16 is assumed for {}: its config names no dtype."),
    NoteRow("files", 2, lambda found: found["files"]),
    NoteRow("limit", 2, lambda found: found["limit"]),
    NoteRow("cache", 2, lambda found: found["caches"], "The KV cache is in {}."),
)


@record
class Side:
    """A model at a workload, and how it is counted."""

    model: LoadedModel
    request: Request = Request()
    terms: Counting = Counting()

    @property
    def parts(self) -> dict[str, str]:
        """What tells sides apart, in words."""
        sizes = {"ctx": "{:,} tokens", "batch": "batch {:,}", "tokens": "{:,} new tokens"}
        return {
            "model": compose.name_of(self.model),
            **{name: words.format(size) for name, words in sizes.items() if (size := getattr(self.request, name))},
            "dtype": self.terms.dtype or "as published",
            "kv_dtype": f"KV {self.cached}",
            **{name: f"{name} {value}" for name, value in self.terms.trained},
        }

    @property
    def cached(self) -> str:
        """The dtype of its KV cache."""
        return counting.dtypes(self.terms.dtype, self.terms.kv_dtype)[1]


def compare(
    sides: Sequence[Side], *, fit: MemoryLimit | None = None, mesh: Mesh | None = None, metrics: Sequence[str] = ()
) -> Report:
    """A column for each side, and with `fit` the requests of its context that fit there. `metrics`: further rows.

    Raises TfacctError, also for a context past a stored position embedding.
    """
    if len(sides) < 2:
        raise UsageError("nothing to compare: one model at one workload", "name a second model, or list contexts")
    alike: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for side in sides:
        words = tuple(side.parts.values())
        if alike.get(words) == side.model.raw:
            raise UsageError("nothing to compare: two sides are the same", "leave one of them out")
        alike[words] = side.model.raw
    models = [side.model for side in sides]
    named = [metric(name, (model.ledger for model in models)) for name in metrics]
    reasons: dict[str, list[str]] = {}
    numbers = [_numbers(side, fit, mesh, named, reasons) for side in sides]
    labels = _labels([side.parts for side in sides])
    contexts = {found["context"] for found in numbers}
    shown = _shown(sides, numbers, named, fit, mesh)
    every = list({compose.name_of(one): one for one in models}.values())
    about = {
        "unsupported": [f"{', '.join(whose)}: {why}" for why, whose in reasons.items()],
        "assumed": _assumed(numbers, models),
        "files": [note for one in every for note in sentences.files_notes([one])],
        "limit": [] if fit is None else list(fit.notes),
        "caches": " or ".join(dict.fromkeys(side.cached for side in sides)),
    }
    where = f"context {min(contexts):,}" if len(contexts) == 1 else "several contexts"
    report = compose.report(
        "compare",
        models,
        _by_side(labels, numbers, shown),
        [{"label": label, **found} for label, found in zip(labels, numbers, strict=True)],
        title=f"{models[0].name if len(every) == 1 else f'{len(every):,} models'}, {where}",
        convention="2 FLOPs per multiply-add; products only; bytes of weights and KV cache, every tensor rounded up",
        answer=_answer(sides, labels, numbers),
        notes=lambda _: notes(NOTES, about),
        requests=[side.request for side in sides],
        defaults=every,
    )
    if len(sides) > WIDE:
        return report
    columns, sections, _ = _by_measure(labels, numbers, shown)
    return replace(report, columns=columns, sections=sections, aside=(), data=report)


def _assumed(numbers: Sequence[Mapping[str, Any]], models: Sequence[LoadedModel]) -> str:
    """Models whose weights are counted in a format that nobody named, where others are as published."""
    found = [compose.name_of(model) for model, one in zip(models, numbers, strict=True) if one["dtype_from"] == ASSUMED]
    return ", ".join(dict.fromkeys(found)) if len(found) < len(models) else ""


def _numbers(
    side: Side, fit: MemoryLimit | None, mesh: Mesh | None, named: Sequence[Metric], reasons: dict[str, list[str]]
) -> dict[str, Any]:
    """The measures of one side, None where there is none; `reasons` gets why."""
    model, plain = side.model, Counting(side.terms.dtype, side.terms.kv_dtype)
    whole = Request(ctx=side.request.ctx, source=side.request.source)
    work = counting.runnable(model, whole)
    found: dict[str, Any] = {
        "context": work.context,
        **counting.format_facts(model, plain.dtype),
        "kv_dtype": side.cached,
        "metrics": {},
        "fits": None,
        REQUESTS: None,
    }

    def refused(error: TfacctError) -> None:
        reasons.setdefault(error.message.removeprefix(f"{model.name}: "), []).append(model.name)

    def taken(what: Metric, request: Request, terms: Counting) -> Fraction | None:
        try:
            return Fraction(what.of(terms.point(model, counting.workload(model, request), [what])))
        except TfacctError as error:
            refused(error)
            return None

    for one in MEASURES:
        absent = not model.keeps and (one.decode or one.group == "cache")
        request = replace(whole, decode=one.decode)
        found[one.key] = None if absent else taken(METRICS[one.metric], request, plain)
    for what in named:
        found["metrics"][what.name] = taken(what, side.request, side.terms)
    if fit is not None:
        try:
            (facts,) = memory([model], whole, dtype=plain.dtype, kv_dtype=plain.kv_dtype, fit=fit, mesh=mesh).models
            most = facts["fit"]
            unbounded = most["largest_batch"] is None and most["batch_slack_bytes"] is not None
            found |= {"fits": most["fits"], REQUESTS: None if unbounded else most["largest_batch"] or 0}
        except TfacctError as error:
            refused(error)
    return found


def _labels(parts: Sequence[Mapping[str, str]]) -> list[str]:
    """What tells sides apart, and nothing else."""
    names = dict.fromkeys(name for one in parts for name in one)
    apart = [name for name in names if len({one.get(name) for one in parts}) > 1] or ["model"]
    return [" · ".join(one.get(name) or f"default {name}" for name in apart) for one in parts]


def _shown(
    sides: Sequence[Side],
    numbers: Sequence[Mapping[str, Any]],
    named: Sequence[Metric],
    fit: MemoryLimit | None,
    mesh: Mesh | None,
) -> list[tuple[str, str, Kind]]:
    """Key, label and kind of each number that is shown. Active parameters and the cache of a request are shown where
    they differ from what is shown already."""
    contexts = {found["context"] for found in numbers}
    ctx = f"{min(contexts):,}" if len(contexts) == 1 else "a request"
    dtypes = {side.terms.dtype for side in sides}
    stored = ""
    if any(found["dtype_from"] == "published" for found in numbers):
        stored = ", as published"
    elif len(dtypes) == 1:
        stored = f", {counting.formats([side.model for side in sides], *dtypes)}"
    caches = [(found["kv_cache_bytes"], found["kv_bytes_per_token"], found["context"]) for found in numbers]
    grown = any(cache != each * context for cache, each, context in caches if cache is not None)
    left = {
        "active_params": all(found["active_params"] == found["total_params"] for found in numbers),
        "kv_cache_bytes": len(contexts) == 1 and not grown,
    }
    shown: list[tuple[str, str, Kind]] = [
        (one.key, one.label.format(stored=stored, ctx=ctx), METRICS[one.metric].unit)
        for one in MEASURES
        if not left.get(one.key)
    ]
    shown += [(one.name, one.name, one.unit) for one in named]
    if fit is None:
        return shown
    many = f" of {ctx}" if len(contexts) == 1 else ""
    where = fit.where if mesh is None else f"{fit.where} (tp={mesh.tp})"
    return [*shown, (REQUESTS, f"requests{many} {where}", "count")]


def _cell(found: Mapping[str, Any], key: str) -> Cell:
    unbounded = key == REQUESTS and found["fits"] and found[key] is None
    return "any" if unbounded else {**found["metrics"], **found}[key]


def _by_measure(
    labels: Sequence[str], numbers: Sequence[Mapping[str, Any]], shown: Sequence[tuple[str, str, Kind]]
) -> Table:
    """A column for each side."""
    columns = [Column("what", ""), *(Column(str(at), label, "amount", empty="–") for at, label in enumerate(labels))]
    rows: list[Row] = []
    for key, label, kind in shown:
        cells = [_cell(found, key) for found in numbers]
        amounts = [Amount(cell, kind) if isinstance(cell, (int, Fraction)) else cell for cell in cells]
        rows.append({"what": label, **{str(at): cell for at, cell in enumerate(amounts)}})
    return tuple(columns), (tuple(rows),), ()


def _by_side(
    labels: Sequence[str], numbers: Sequence[Mapping[str, Any]], shown: Sequence[tuple[str, str, Kind]]
) -> Table:
    """A row for each side."""
    columns = (Column("label", "model"), *(Column(key, label, kind, empty="–") for key, label, kind in shown))
    rows = (
        {"label": label, **{key: _cell(found, key) for key, *_ in shown}}
        for label, found in zip(labels, numbers, strict=True)
    )
    return columns, (tuple(rows),), ()


def _answer(sides: Sequence[Side], labels: Sequence[str], numbers: Sequence[Mapping[str, Any]]) -> str:
    """The largest difference from the first side, and the largest in another respect of the same side."""
    first = numbers[0]
    found = [
        (abs(log(ratio)), at, one, ratio)
        for at, other in enumerate(numbers[1:], start=1)
        for one in MEASURES
        if first[one.key] and other[one.key]
        for ratio in [Fraction(other[one.key]) / first[one.key]]
        if abs(ratio - 1) > ALIKE
    ]
    if not found:
        return f"{labels[0]} and {'the others' if len(labels) > 2 else labels[1]} are alike."
    most = max(found, key=_size)
    others = [one for one in found if one[1] == most[1] and one[2].group != most[2].group]
    said = f"{_times(most[3])} the {most[2].noun} of {labels[0]}"
    said += f", {_times(one[3])} its {one[2].noun}" if others and (one := max(others, key=_size)) else ""
    verb = " has" if compose.name_of(sides[0].model) != compose.name_of(sides[most[1]].model) else ":"
    return f"{labels[most[1]]}{verb} {said}."


def _size(difference: tuple[float, int, Measure, Fraction]) -> tuple[float, bool]:
    """Size of a difference; of two alike, that of decoding comes first."""
    return round(difference[0], 2), difference[2].decode


def _times(ratio: Fraction) -> str:
    """`3.8 ×`, `0.65 ×`, `120 ×`; three digits near 1."""
    near = Fraction(9, 10) < ratio < Fraction(11, 10)
    return f"{units.three(ratio) if near or ratio >= 100 else f'{float(ratio):.2g}'} ×"
