"""Bytes to serve a model: weights and KV cache, and what still fits a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import Any

from tfacct.accounts.memory import cache_bytes, largest_that_fits, next_token_bytes, token_bytes
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.lines import State
from tfacct.ledger.storage import Storage, Width, width
from tfacct.ledger.workload import LARGEST, Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import PLAIN, Column, Report, Row, Table
from tfacct.reports import cells, compose, counting, pages, ranks, sentences
from tfacct.reports.cells import dtypes_by_part
from tfacct.reports.sentences import storage_notes

CONVENTION = "weights and KV cache only; every tensor rounded up to whole bytes"


def memory(
    subjects: Sequence[LoadedModel],
    request: Request,
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    fit: int | None = None,
    use: float | None = None,
    kv_block: int | None = None,
    card: str = "",
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
) -> Report:
    """Bytes of weights and KV cache. `fit`: a budget in bytes, for the largest context and batch that fit it; `use`:
    the share of it that an engine may take; `card`: a sentence about it. `kv_block`: tokens of a page of the cache.
    `tp`: ranks that divide the model, in each of `pp` stages; the bytes are those of the fullest. `ep`: ranks that
    divide the experts, `tp` of them to a batch. Raises TfacctError."""
    if fit is not None and (not isinstance(fit, int) or isinstance(fit, bool) or fit < 1):
        raise UsageError(f"{option('fit')} must be a whole number of bytes, not {fit!r}")
    given, fit = fit, pages.usable(fit, use)
    cached = width(counting.dtypes(dtype, kv_dtype)[1], pages.checked(kv_block))
    subjects, left_out = counting.with_known_bytes(subjects, dtype)
    stored = counting.stored_name(subjects, dtype)
    undivided, subjects, unfit = ranks.as_one_of(subjects, tp, dtype, pp, ep)
    left_out += unfit
    if pp > 1 and kv_block is not None:
        raise UsageError(f"{option('kv_block')} is not counted beside {option('pp')}")
    count = max(tp, ep) * pp
    whole = [] if count == 1 else [_facts(one, request, one.storage(dtype), cached, None) for one in undivided]
    fullest = [_fullest(subject, pp, request, dtype, cached, fit) for subject in subjects]
    subjects, facts = [subject for subject, _ in fullest], tuple(fact for _, fact in fullest)
    if whole:
        facts = tuple({**ranks.beside(fact, of, tp), "ep": ep} for fact, of in zip(facts, whole, strict=True))
    if fit is not None and not any(_fits(fact, "context") or _fits(fact, "batch") for fact in facts):
        large = "; ".join(_too_large(subject, fact, fit) for subject, fact in zip(subjects, facts, strict=True))
        raise UsageError(large, f"a smaller {option('dtype')}, or a larger {option('fit')}")
    if len(subjects) == 1:
        table = _one(facts[0], _row(subjects[0]))
        title = f"{compose.name_of(subjects[0])}: memory{f' of one of {count:,} ranks' if whole else ''}"
    else:
        table = _several(subjects, facts, fit)
        title = f"Memory to serve{f' on one of {count:,} ranks' if whole else ''}"
    kept = sentences.kept_in(subjects, cached.name)
    kv = "" if kept.endswith(f" in {stored}") else f", {kept}"
    return compose.report(
        "memory",
        subjects,
        table,
        facts,
        title=f"{title} in {stored}{kv}, {compose.workload_words(subjects, request)}",
        convention=CONVENTION,
        answer=_answer(subjects, facts, fit),
        notes=lambda at: [
            *_notes(subjects[at], facts[at], dtype, fit),
            *pages.notes(facts[at], given, use, card),
            *(ranks.notes(undivided[at], facts[at], tp, pp, ep) if whole else ()),
        ],
        counted=f"weights{_and_kept(subjects)} only; no activations, engine buffers or fragmentation",
        requests=[request],
        left_out=left_out,
        headline="total_bytes",
    )


def _answer(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], fit: int | None) -> str:
    """The total of one model, or the least and the most of several; of a budget, who fits it."""
    if len(facts) == 1:
        return _alone(subjects[0], facts[0]) if fit is None else _fitting(subjects[0], facts[0], fit)
    if fit is not None:
        fitting = sum(fact["total_bytes"] <= fit for fact in facts)
        return f"{fitting:,} of {len(facts):,} models fit in {units.budget(fit)} at the context shown."
    named = [(fact["total_bytes"], subject.name) for subject, fact in zip(subjects, facts, strict=True)]
    (least, small), (most, large) = min(named), max(named)
    return f"From {units.binary(least)} ({small}) to {units.binary(most)} ({large})."


def _alone(subject: LoadedModel, fact: dict[str, Any]) -> str:
    total, weights, kept = (units.binary(fact[f"{what}_bytes"]) for what in ("total", "weights", "kv_cache"))
    return f"{total}: {weights} of weights" + (f" and {kept} of {subject.kept}." if subject.keeps else ".")


def _fitting(subject: LoadedModel, fact: dict[str, Any], fit: int) -> str:
    """What fits a budget; first, where the step that was asked about does not, that it does not."""
    found, work, size = fact["fit"], fact["workload"], units.budget(fit)
    sequences, tokens = f"{work['batch']:,}", f"{work['keys']:,}"
    if fact["total_bytes"] > fit:
        takes = f"Does not fit in {size}: {units.binary(fact['total_bytes'])} at context {tokens}, batch {sequences}."
        return f"{takes} {_longest(fact, ' fits')}"
    if not subject.keeps:
        return f"Fits in {size}: the weights take {units.binary(fact['weights_bytes'])}, and nothing is kept."
    batch = found["largest_batch"] or 0
    return f"Fits in {size}: {_longest(fact, '')}, or {batch:,} sequence{'' if batch == 1 else 's'} of {tokens}."


def _longest(fact: dict[str, Any], fits: str) -> str:
    """The largest context at the batch that was asked about."""
    found, batch = fact["fit"], fact["workload"]["batch"]
    if found["largest_context"] is not None:
        return f"{found['largest_context']:,} tokens{fits and ' fit'} at batch {batch:,}{fits and '.'}"
    if found["context_slack_bytes"] is not None:
        return f"{'A' if fits else 'a'}ny context{fits} at batch {batch:,}{fits and '.'}"
    return f"Not even one token fits at batch {batch:,}."


def _notes(
    subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], dtype: str | None, fit: int | None
) -> list[str]:
    return [
        *storage_notes(subjects, dtype),
        *sentences.cache_notes(subjects, facts),
        *sentences.state_notes(subjects, staged="pp" in facts[0]),
        *sentences.source_notes(subjects),
        *_fit_notes(subjects, facts, fit),
    ]


def _facts(subject: LoadedModel, request: Request, stored: Storage, cached: Width, fit: int | None) -> dict[str, Any]:
    work = counting.workload(subject, request)
    lines = _lines(subject, work, stored, cached)
    weights, cache = (sum(line["bytes"] for line in lines if line["kind"] == kind) for kind in ("weights", "cache"))
    facts: dict[str, Any] = {
        "workload": counting.workload_facts(work, dtype=stored.name),
        "kv_dtype": cached.name,
        "total_params": sum(line["elements"] for line in lines if line["kind"] == "weights"),
        "weights_bytes": weights,
        "kv_cache_bytes": cache,
        "kv_bytes_per_token": token_bytes(subject.ledger, work.axes(), cached),
        "kv_bytes_next_token": next_token_bytes(subject.ledger, work.axes(), cached),
        "total_bytes": weights + cache,
        "lines": lines,
    }
    if fit is not None:
        facts["fit"] = _fit(subject, work, cached, fit, weights)
    if cached.page > 1:
        facts |= pages.facts(subject, work, cached, None if fit is None else fit - weights)
    return facts


def _fullest(
    subject: LoadedModel, pp: int, request: Request, dtype: str | None, cached: Width, fit: int | None
) -> tuple[LoadedModel, dict[str, Any]]:
    """The stage of a model that holds most, and its facts; what fits is what fits every stage."""
    found = [
        (own, _facts(own, request, own.storage(dtype), cached, fit) | ({"pp": pp, "stage": number} if pp > 1 else {}))
        for number, own in ranks.stages_of(subject, pp)
    ]
    own, facts = max(found, key=lambda one: one[1]["total_bytes"])
    if fit is not None and pp > 1:
        facts["fit"] = ranks.fitting_all([each["fit"] for _, each in found])
    return own, facts


def _fit(subject: LoadedModel, work: Workload, cached: Width, budget: int, weights: int) -> dict[str, Any]:
    """The largest context at this batch and the largest batch at this context; None where not even 1 fits, and, with
    a slack, where what is kept bounds none."""
    room = budget - weights

    def cache(context: int, batch: int) -> int:
        at = replace(work, context=context, batch=batch).axes()
        return int(cache_bytes(subject.ledger, at, cached))

    context = largest_that_fits(lambda n: cache(n, work.batch), room, LARGEST)
    batch = largest_that_fits(lambda n: cache(work.context, n), room, LARGEST)
    return {
        "budget_bytes": budget,
        "largest_context": context if 0 < context < LARGEST else None,
        "context_slack_bytes": room - cache(context, work.batch) if context else None,
        "largest_batch": batch if 0 < batch < LARGEST else None,
        "batch_slack_bytes": room - cache(work.context, batch) if batch else None,
    }


def _fits(fact: dict[str, Any], what: str) -> bool:
    """True if any context, or any batch, fits."""
    return fact["fit"][f"{what}_slack_bytes"] is not None


def _too_large(subject: LoadedModel, fact: dict[str, Any], fit: int) -> str:
    weights = fact["weights_bytes"]
    short = weights - fit
    what = f"{subject.name}: the weights alone are {_size(weights)}"
    if short > 0:
        return f"{what}, {_size(short)} more than {option('fit')} {_size(fit)}"
    batch = fact["workload"]["batch"]
    many = "one token" if batch == 1 else f"one token of each of {batch:,} sequences"
    if not fact["kv_bytes_per_token"]:
        many = f"{batch:,} sequence{'' if batch == 1 else 's'}"
    kept = "KV cache" if fact["kv_bytes_per_token"] else "state"
    return f"{what}: {_size(-short)} are left of {_size(fit)}, less than the {kept} of {many}"


def _size(value: int) -> str:
    return f"{value:,} bytes ({units.binary(value)}, {units.decimal_bytes(value)})"


def _fit_notes(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], fit: int | None) -> list[str]:
    if fit is None:
        return []
    if len(facts) > 1:
        return ["max ctx, max batch: the largest that fit, whatever the model was trained for. –: not even 1 fits."]
    found, trained = facts[0]["fit"], subjects[0].context
    context, batch = found["largest_context"], found["largest_batch"]
    if not subjects[0].keeps:
        free = f"{units.binary(found['context_slack_bytes'])} stay free"
        return [f"{free}. No cache limits the context or the batch."]
    notes, slack = [], []
    if context is None and found["context_slack_bytes"] is not None:
        why = "a window" if sentences.attends(subjects) else "a state of fixed size"
        notes = [f"Every block keeps only {why}, so nothing limits the context."]
    elif context is not None:
        past = f", past the {trained:,} it was trained with" if context > trained else ""
        slack = [f"{units.binary(found['context_slack_bytes'])} at {context:,} tokens{past}"]
    if batch is not None:
        slack += [f"{units.binary(found['batch_slack_bytes'])} at batch {batch:,}"]
    return [*notes, *([f"Left free: {'; '.join(slack)}."] if slack else [])]


def _and_kept(subjects: Sequence[LoadedModel]) -> str:
    """What is counted beside weights, where anything is kept."""
    return f" and {sentences.kept(subjects)}" if any(subject.keeps for subject in subjects) else ""


def _row(subject: LoadedModel) -> str | None:
    """Name of the row of what is kept; None where nothing is."""
    return subject.kept if subject.keeps else None


def _one(facts: dict[str, Any], row: str | None) -> Table:
    """Weights by part, and what is kept in a `row`, where anything is."""
    columns = (
        Column("what", "what"),
        Column("elements", "elements", "params"),
        Column("dtype", "dtype", drop=3),
        Column("bytes", "bytes", "bytes"),
        Column("gigabytes", "in GB", "gigabytes", drop=4),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    total = facts["total_bytes"]

    rows = [cells.with_share({**line, "gigabytes": line["bytes"]}, line["bytes"], total) for line in facts["lines"]]
    sections = tuple(tuple(group) for _, group in groupby(rows, key=lambda row: row["kind"]))
    cached = sum(line["elements"] for line in facts["lines"] if line["kind"] == "cache")
    totals: tuple[Row, ...] = (
        {"what": "weights", "elements": facts["total_params"], **_sized(facts["weights_bytes"], total)},
        *(({"what": row, "elements": cached, **_sized(facts["kv_cache_bytes"], total)},) if row else ()),
        {"what": "total", **_sized(total, total)},
    )
    if row is not None and row != "state" and cached:
        totals = (*totals, {"what": "next token", **_sized(facts["kv_bytes_next_token"], None), PLAIN: 1})
    return columns, sections, totals


def _lines(subject: LoadedModel, work: Workload, how: Storage, cached: Width) -> list[dict[str, Any]]:
    """Weights by part, and every state."""
    ledger, at = subject.ledger, work.axes()
    elements, taken, dtypes = ledger.parameters(), ledger.weight_bytes(how), dtypes_by_part(ledger, how)
    parts = cells.by_part(elements)
    weights = cells.by_part(taken)
    states, kept = ledger.states(at), ledger.state_bytes(at, cached)
    lines = (line for group in ledger.groups for line in group.lines if isinstance(line, State))
    own = {line.path: f"fp{line.bits}" for line in lines if line.bits is not None}
    return [
        {"what": part, "kind": "weights", "elements": parts[part], "dtype": dtypes[part], "bytes": weights[part]}
        for part in parts
    ] + [
        {"what": paths.short(path), "kind": "cache", "elements": count, "bytes": kept[path]}
        | {"dtype": own.get(path, cached.name)}
        for path, count in states.items()
    ]


def _sized(taken: int, whole: int | None) -> dict[str, Any]:
    return {"bytes": taken, "gigabytes": taken, "share": Fraction(taken, whole) if whole else None}


def _several(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], fit: int | None) -> Table:
    fitting = (
        Column("largest_context", "max ctx", "count", empty="–"),
        Column("largest_batch", "max batch", "count", empty="–"),
    )
    next_token = Column("kv_bytes_next_token", "next token", "bytes", drop=2)
    kept = Column("kv_cache_bytes", sentences.kept(subjects), "bytes", drop=1 if fit is not None else 0)
    keeps = any(subject.keeps for subject in subjects)
    columns = (
        Column("model", "model"),
        Column("total_params", "params", "params", drop=3),
        Column("weights_bytes", "weights", "bytes", drop=1),
        Column("keys", "context", "count"),
        *((next_token,) if keeps and sentences.attends(subjects) else ()),
        *((kept,) if keeps else ()),
        Column("total_bytes", "total", "bytes"),
        *((Column("whole_bytes", "whole model", "bytes"),) if "whole" in facts[0] else ()),
        *(fitting if fit is not None else ()),
    )
    rows: list[Row] = []
    for subject, fact in zip(subjects, facts, strict=True):
        row = {**fact, "model": compose.name_of(subject), "keys": fact["workload"]["keys"]}
        if "whole" in fact:
            row["whole_bytes"] = fact["whole"]["total_bytes"]
        for key in ("largest_context", "largest_batch") if fit is not None else ():
            row[key] = fact["fit"][key]
            if row[key] is None and _fits(fact, key.removeprefix("largest_")):
                row[key] = "any"
        rows.append(row)
    return columns, (tuple(rows),), ()
