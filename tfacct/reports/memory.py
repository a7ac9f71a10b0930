"""Bytes to serve a model: weights and KV cache, and what still fits a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import Any

from tfacct import units
from tfacct.errors import UsageError
from tfacct.memory import cache_bytes, largest_that_fits, token_bytes
from tfacct.report import Column, Report, Row, Table
from tfacct.reports import _common as common
from tfacct.reports import _kinds as kinds
from tfacct.subject import Subject
from tfacct.workload import LARGEST, Request, Workload

CONVENTION = "weights and KV cache only; every tensor rounded up to whole bytes"


def memory(
    subjects: Sequence[Subject],
    request: Request,
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    fit: int | None = None,
) -> Report:
    """Bytes of weights and KV cache. `fit`: a budget in bytes, for the largest context and batch that fit it."""
    if fit is not None and (not isinstance(fit, int) or isinstance(fit, bool) or fit < 1):
        raise UsageError(f"--fit must be a whole number of bytes, not {fit!r}")
    stored, cached = common.dtypes(dtype, kv_dtype)
    subjects, left_out = common.with_known_bytes(subjects, dtype)
    facts = tuple(_facts(subject, request, stored, cached, fit) for subject in subjects)
    if fit is not None and not any(fact["fit"]["largest_context"] or fact["fit"]["largest_batch"] for fact in facts):
        raise UsageError("; ".join(_too_large(fact, fit) for fact in facts), "a smaller --dtype, or a larger --fit")
    if len(subjects) == 1:
        columns, sections, totals = _one(facts[0], kinds.attends(subjects))
        title = f"{common.name_of(subjects[0])}: memory"
    else:
        columns, sections, totals = _several(subjects, facts, fit)
        title = "Memory to serve"
    what = kinds.kept(subjects)
    kv = "" if cached == stored else f", {what} in {cached}"
    return Report(
        command="memory",
        title=f"{title} in {stored}{kv}, {common.workload_words(subjects, request)}",
        columns=columns,
        sections=sections,
        totals=totals,
        notes=(
            f"Weights and {what} only: activations, the engine's buffers and fragmentation are left out.",
            *kinds.state_notes(subjects),
            *common.source_notes(subjects),
            *_fit_notes(subjects, facts, fit),
            *common.defaulted_notes(subjects),
        ),
        hints=(
            *common.context_hints(subjects, request),
            *_fit_hints(subjects, facts, fit),
            *common.unknown_hints(subjects),
            *left_out,
        ),
        models=facts,
        convention=CONVENTION,
        headline="total_bytes",
    )


def _facts(subject: Subject, request: Request, stored: str, cached: str, fit: int | None) -> dict[str, Any]:
    work = common.workload(subject, request)
    lines = _lines(subject, work, stored, cached)
    weights, cache = (sum(line["bytes"] for line in lines if line["kind"] == kind) for kind in ("weights", "cache"))
    facts: dict[str, Any] = {
        **common.model_facts(subject),
        "workload": common.workload_facts(work, dtype=stored),
        "kv_dtype": cached,
        "total_params": sum(line["elements"] for line in lines if line["kind"] == "weights"),
        "weights_bytes": weights,
        "kv_cache_bytes": cache,
        "kv_bytes_per_token": token_bytes(subject.ledger, work.axes(), units.dtype_bits(cached)),
        "total_bytes": weights + cache,
        "lines": lines,
    }
    if fit is not None:
        facts["fit"] = _fit(subject, work, cached, fit, weights)
    return facts


def _fit(subject: Subject, work: Workload, cached: str, budget: int, weights: int) -> dict[str, Any]:
    """The largest context at this batch and the largest batch at this context; None where not even 1 fits."""
    room = budget - weights

    def cache(context: int, batch: int) -> int:
        at = replace(work, context=context, batch=batch).axes()
        return int(cache_bytes(subject.ledger, at, units.dtype_bits(cached)))

    context = largest_that_fits(lambda n: cache(n, work.batch), room, LARGEST)
    batch = largest_that_fits(lambda n: cache(work.context, n), room, LARGEST)
    return {
        "budget_bytes": budget,
        "largest_context": context if 0 < context < LARGEST else None,
        "context_slack_bytes": room - cache(context, work.batch) if context else None,
        "largest_batch": batch or None,
        "batch_slack_bytes": room - cache(work.context, batch) if batch else None,
    }


def _too_large(fact: dict[str, Any], fit: int) -> str:
    weights = fact["weights_bytes"]
    short = weights - fit
    what = f"{fact['model']}: the weights alone are {_size(weights)}"
    if short > 0:
        return f"{what}, {_size(short)} more than --fit {_size(fit)}"
    batch = fact["workload"]["batch"]
    many = "one token" if batch == 1 else f"one token of each of {batch:,} sequences"
    if not fact["kv_bytes_per_token"]:
        many = f"{batch:,} sequence{'' if batch == 1 else 's'}"
    kept = "KV cache" if fact["kv_bytes_per_token"] else "state"
    return f"{what}: {_size(-short)} are left of {_size(fit)}, less than the {kept} of {many}"


def _size(value: int) -> str:
    return f"{value:,} bytes ({units.binary(value)}, {units.decimal_bytes(value)})"


def _fit_notes(subjects: Sequence[Subject], facts: Sequence[dict[str, Any]], fit: int | None) -> list[str]:
    if fit is None:
        return []
    if len(facts) > 1:
        return [f"max ctx, max batch: the largest that fit {_size(fit)}, trained for it or not; –: not even 1 does."]
    found, work, trained = facts[0]["fit"], facts[0]["workload"], subjects[0].context
    context, batch = found["largest_context"], found["largest_batch"]
    if context is None and found["context_slack_bytes"] is not None:
        why = "a window, no more" if kinds.attends(subjects) else "a state of one size"
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


def _fit_hints(subjects: Sequence[Subject], facts: Sequence[dict[str, Any]], fit: int | None) -> list[str]:
    """Says it where the context that fits one model is past what it was trained for."""
    found = facts[0]["fit"]["largest_context"] if fit is not None and len(facts) == 1 else None
    return common.context_hints(subjects, Request(ctx=found)) if found else []


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

    rows = [common.with_share({**line, "gigabytes": line["bytes"]}, line["bytes"], total) for line in facts["lines"]]
    sections = tuple(tuple(group) for _, group in groupby(rows, key=lambda row: row["kind"]))
    cached = sum(line["elements"] for line in facts["lines"] if line["kind"] == "cache")
    totals: tuple[Row, ...] = (
        {"what": "weights", "elements": facts["total_params"], **_sized(facts["weights_bytes"], total)},
        {"what": "KV cache" if attention else "state", "elements": cached, **_sized(facts["kv_cache_bytes"], total)},
        {"what": "total", **_sized(total, total)},
    )
    if attention:
        totals = (*totals, {"what": "KV / token", **_sized(facts["kv_bytes_per_token"], None)})
    return columns, sections, totals


def _lines(subject: Subject, work: Workload, stored: str, cached: str) -> list[dict[str, Any]]:
    """Weights by part, and every state."""
    ledger, at = subject.ledger, work.axes()
    elements, taken = ledger.parameters(), ledger.weight_bytes(units.dtype_bits(stored))
    parts = common.by_part(elements)
    weights = common.by_part(taken)
    states, kept = ledger.states(at), ledger.state_bytes(at, units.dtype_bits(cached))
    return [
        {"what": part, "kind": "weights", "elements": parts[part], "dtype": stored, "bytes": weights[part]}
        for part in parts
    ] + [
        {"what": common.short(path), "kind": "cache", "elements": states[path], "dtype": cached, "bytes": kept[path]}
        for path in states
    ]


def _sized(taken: int, whole: int | None) -> dict[str, Any]:
    return {"bytes": taken, "gigabytes": taken, "share": Fraction(taken, whole) if whole else None}


def _several(subjects: Sequence[Subject], facts: Sequence[dict[str, Any]], fit: int | None) -> Table:
    fitting = (
        Column("largest_context", "max ctx", "count", empty="–"),
        Column("largest_batch", "max batch", "count", empty="–"),
    )
    per_token = Column("kv_bytes_per_token", "KV / token", "bytes", drop=1 if fit is not None else 0)
    columns = (
        Column("model", "model"),
        Column("total_params", "params", "params", drop=2),
        Column("weights_bytes", "weights", "bytes"),
        Column("keys", "context", "count"),
        *((per_token,) if kinds.attends(subjects) else ()),
        Column("kv_cache_bytes", kinds.kept(subjects), "bytes"),
        Column("total_bytes", "total", "bytes"),
        *(fitting if fit is not None else ()),
    )
    rows: list[Row] = []
    for subject, fact in zip(subjects, facts, strict=True):
        row = {**fact, "model": common.name_of(subject), "keys": fact["workload"]["keys"]}
        for key in ("largest_context", "largest_batch") if fit is not None else ():
            row[key] = fact["fit"][key]
        if fit is not None and row["largest_context"] is None and fact["fit"]["context_slack_bytes"] is not None:
            row["largest_context"] = "any"
        rows.append(row)
    return columns, (tuple(rows),), ()
