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
from tfacct.ledger.storage import storage, width
from tfacct.ledger.workload import LARGEST, Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table
from tfacct.reports import cells, compose, counting, sentences
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
) -> Report:
    """Bytes of weights and KV cache. `fit`: a budget in bytes, for the largest context and batch that fit it."""
    if fit is not None and (not isinstance(fit, int) or isinstance(fit, bool) or fit < 1):
        raise UsageError(f"{option('fit')} must be a whole number of bytes, not {fit!r}")
    stored, cached = counting.dtypes(dtype, kv_dtype)
    subjects, left_out = counting.with_known_bytes(subjects, dtype)
    facts = tuple(_facts(subject, request, stored, cached, fit) for subject in subjects)
    if fit is not None and not any(_fits(fact, "context") or _fits(fact, "batch") for fact in facts):
        large = "; ".join(_too_large(subject, fact, fit) for subject, fact in zip(subjects, facts, strict=True))
        raise UsageError(large, f"a smaller {option('dtype')}, or a larger {option('fit')}")
    if len(subjects) == 1:
        table = _one(facts[0], sentences.attends(subjects))
        title = f"{compose.name_of(subjects[0])}: memory"
    else:
        table = _several(subjects, facts, fit)
        title = "Memory to serve"
    kv = "" if cached == stored else f", {sentences.kept(subjects)} in {cached}"
    return compose.report(
        "memory",
        subjects,
        table,
        facts,
        title=f"{title} in {stored}{kv}, {compose.workload_words(subjects, request)}",
        convention=CONVENTION,
        notes=lambda at: _notes(subjects[at], facts[at], stored, fit),
        requests=[request],
        hints=_fit_hints(subjects, facts, fit),
        left_out=left_out,
        headline="total_bytes",
    )


def _notes(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], stored: str, fit: int | None) -> list[str]:
    what = sentences.kept(subjects)
    return [
        f"Weights and {what} only: activations, the engine's buffers and fragmentation are left out.",
        *storage_notes(subjects, stored),
        *sentences.state_notes(subjects),
        *sentences.source_notes(subjects),
        *_fit_notes(subjects, facts, fit),
    ]


def _facts(subject: LoadedModel, request: Request, stored: str, cached: str, fit: int | None) -> dict[str, Any]:
    work = counting.workload(subject, request)
    lines = _lines(subject, work, stored, cached)
    weights, cache = (sum(line["bytes"] for line in lines if line["kind"] == kind) for kind in ("weights", "cache"))
    facts: dict[str, Any] = {
        "workload": counting.workload_facts(work, dtype=stored),
        "kv_dtype": cached,
        "total_params": sum(line["elements"] for line in lines if line["kind"] == "weights"),
        "weights_bytes": weights,
        "kv_cache_bytes": cache,
        "kv_bytes_per_token": token_bytes(subject.ledger, work.axes(), width(cached)),
        "kv_bytes_next_token": next_token_bytes(subject.ledger, work.axes(), width(cached)),
        "total_bytes": weights + cache,
        "lines": lines,
    }
    if fit is not None:
        facts["fit"] = _fit(subject, work, cached, fit, weights)
    return facts


def _fit(subject: LoadedModel, work: Workload, cached: str, budget: int, weights: int) -> dict[str, Any]:
    """The largest context at this batch and the largest batch at this context; None where not even 1 fits, and, with
    a slack, where what is kept bounds none."""
    room = budget - weights

    def cache(context: int, batch: int) -> int:
        at = replace(work, context=context, batch=batch).axes()
        return int(cache_bytes(subject.ledger, at, width(cached)))

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
        return [f"max ctx, max batch: the largest that fit {_size(fit)}, trained for it or not; –: not even 1 does."]
    found, work, trained = facts[0]["fit"], facts[0]["workload"], subjects[0].context
    context, batch = found["largest_context"], found["largest_batch"]
    if not subjects[0].keeps:
        slack = _size(found["context_slack_bytes"])
        free = "Nothing is kept between steps, so no cache bounds the context or the batch."
        return [f"{_size(fit)} hold the weights: slack {slack}. {free}"]
    if context is None and found["context_slack_bytes"] is not None:
        why = "a window, no more" if sentences.attends(subjects) else "a state of one size"
        notes = [f"In {_size(fit)} fits any context at batch {work['batch']:,}: every block keeps {why}."]
    elif context is None:
        notes = [f"In {_size(fit)} not even one token of {work['batch']:,} sequences fits."]
    else:
        past = f", past the trained {trained:,}" if context > trained else ""
        at_batch = f"at batch {work['batch']:,} a context of up to {context:,}{past}"
        notes = [f"In {_size(fit)} fits {at_batch}: slack {_size(found['context_slack_bytes'])}."]
    if batch is None:
        return [*notes, f"At context {work['keys']:,} not even one sequence fits."]
    return [
        *notes,
        f"At context {work['keys']:,} a batch of up to {batch:,}: slack {_size(found['batch_slack_bytes'])}.",
    ]


def _fit_hints(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], fit: int | None) -> list[str]:
    """Says it where the context that fits one model is past what it was trained for."""
    found = facts[0]["fit"]["largest_context"] if fit is not None and len(facts) == 1 else None
    return compose.context_hints([subjects], Request(ctx=found)) if found else []


def _one(facts: dict[str, Any], attention: bool) -> Table:
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
        {"what": "KV cache" if attention else "state", "elements": cached, **_sized(facts["kv_cache_bytes"], total)},
        {"what": "total", **_sized(total, total)},
    )
    if attention and cached:
        totals = (*totals, {"what": "next token", **_sized(facts["kv_bytes_next_token"], None)})
    return columns, sections, totals


def _lines(subject: LoadedModel, work: Workload, stored: str, cached: str) -> list[dict[str, Any]]:
    """Weights by part, and every state."""
    ledger, at, how = subject.ledger, work.axes(), storage(stored)
    elements, taken, dtypes = ledger.parameters(), ledger.weight_bytes(how), dtypes_by_part(ledger, how)
    parts = cells.by_part(elements)
    weights = cells.by_part(taken)
    states, kept = ledger.states(at), ledger.state_bytes(at, width(cached))
    return [
        {"what": part, "kind": "weights", "elements": parts[part], "dtype": dtypes[part], "bytes": weights[part]}
        for part in parts
    ] + [
        {"what": paths.short(path), "kind": "cache", "elements": states[path], "dtype": cached, "bytes": kept[path]}
        for path in states
    ]


def _sized(taken: int, whole: int | None) -> dict[str, Any]:
    return {"bytes": taken, "gigabytes": taken, "share": Fraction(taken, whole) if whole else None}


def _several(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], fit: int | None) -> Table:
    fitting = (
        Column("largest_context", "max ctx", "count", empty="–"),
        Column("largest_batch", "max batch", "count", empty="–"),
    )
    next_token = Column("kv_bytes_next_token", "next token", "bytes", drop=2)
    columns = (
        Column("model", "model"),
        Column("total_params", "params", "params", drop=3),
        Column("weights_bytes", "weights", "bytes", drop=1),
        Column("keys", "context", "count"),
        *((next_token,) if sentences.attends(subjects) else ()),
        Column("kv_cache_bytes", sentences.kept(subjects), "bytes", drop=1 if fit is not None else 0),
        Column("total_bytes", "total", "bytes"),
        *(fitting if fit is not None else ()),
    )
    rows: list[Row] = []
    for subject, fact in zip(subjects, facts, strict=True):
        row = {**fact, "model": compose.name_of(subject), "keys": fact["workload"]["keys"]}
        for key in ("largest_context", "largest_batch") if fit is not None else ():
            row[key] = fact["fit"][key]
            if row[key] is None and _fits(fact, key.removeprefix("largest_")):
                row[key] = "any"
        rows.append(row)
    return columns, (tuple(rows),), ()
