"""Bytes to serve a model: weights and KV cache, and what still fits a budget."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tfacct import units
from tfacct.errors import UsageError
from tfacct.memory import Footprint, footprint, largest_that_fits
from tfacct.report import Column, Report, Row, Table
from tfacct.reports import _common as common
from tfacct.subject import Subject
from tfacct.workload import LARGEST, Request, Workload

CONVENTION = "weights and KV cache only; every tensor rounded up to whole bytes"
DEFAULT_DTYPE = "bf16"


def memory(
    subjects: Sequence[Subject],
    request: Request,
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    fit: int | None = None,
) -> Report:
    """Bytes of weights and KV cache. `fit`: a budget in bytes, for the largest context and batch that fit it."""
    stored = units.dtype_name(dtype or DEFAULT_DTYPE)
    cached = units.dtype_name(kv_dtype) if kv_dtype else cache_dtype(stored)
    for subject in subjects:
        if subject.quantized and dtype is None:
            raise UsageError(
                f"{subject.name} has a quantization_config: what its weights take is not guessed",
                "give --dtype",
            )
    facts = tuple(_facts(subject, request, stored, cached, fit) for subject in subjects)
    if fit is not None and all(fact["fit"]["largest_context"] is None for fact in facts):
        raise UsageError(_too_large(facts[0], fit), "a smaller --dtype, or a larger --fit")
    if len(subjects) == 1:
        columns, sections, totals = _one(subjects[0], request, stored, cached, facts[0])
        title = f"{common.name_of(subjects[0])}: memory"
    else:
        columns, sections, totals = _several(subjects, facts, fit)
        title = "Memory to serve"
    kv = "" if cached == stored else f", KV cache in {cached}"
    return Report(
        command="memory",
        title=f"{title} in {stored}{kv}, {common.workload_words(subjects, request)}",
        columns=columns,
        sections=sections,
        totals=totals,
        notes=(
            "Weights and KV cache only: activations, the engine's buffers and fragmentation are left out.",
            *_fit_notes(subjects, facts, fit),
            *common.defaulted_notes(subjects),
        ),
        hints=(*common.context_hints(subjects, request), *common.unknown_hints(subjects)),
        models=facts,
        convention=CONVENTION,
        headline="total_bytes",
    )


def cache_dtype(stored: str) -> str:
    """The KV cache's dtype where none was named: that of the activations, which int8 and int4 weights leave in bf16."""
    return DEFAULT_DTYPE if stored.startswith("int") else stored


def _facts(subject: Subject, request: Request, stored: str, cached: str, fit: int | None) -> dict[str, Any]:
    work = request.workload(subject.context)
    held = _footprint(subject, work, stored, cached)
    facts: dict[str, Any] = {
        **common.model_facts(subject),
        "workload": common.workload_facts(work, dtype=stored),
        "kv_dtype": cached,
        "total_params": sum(subject.ledger.parameters().values()),
        "weights_bytes": held.weights,
        "kv_cache_bytes": held.cache,
        "kv_bytes_per_token": held.per_token,
        "total_bytes": held.total,
    }
    if fit is not None:
        facts["fit"] = _fit(subject, work, stored, cached, fit)
    return facts


def _footprint(subject: Subject, work: Workload, stored: str, cached: str) -> Footprint:
    return footprint(subject.ledger, work.axes(), units.dtype_bits(stored), units.dtype_bits(cached))


def _fit(subject: Subject, work: Workload, stored: str, cached: str, budget: int) -> dict[str, Any]:
    """The largest context at this batch and the largest batch at this context; None where not even 1 fits."""

    def held(context: int, batch: int) -> int:
        return int(_footprint(subject, Workload(context, context, batch), stored, cached).total)

    context = largest_that_fits(lambda n: held(n, work.batch), budget, LARGEST)
    batch = largest_that_fits(lambda n: held(work.context, n), budget, LARGEST)
    return {
        "budget_bytes": budget,
        "largest_context": context or None,
        "context_slack_bytes": budget - held(context, work.batch) if context else None,
        "largest_batch": batch or None,
        "batch_slack_bytes": budget - held(work.context, batch) if batch else None,
    }


def _too_large(fact: dict[str, Any], fit: int) -> str:
    weights = fact["weights_bytes"]
    short = weights - fit
    what = f"{fact['model']}: the weights alone are {_size(weights)}"
    if short > 0:
        return f"{what}, {_size(short)} more than --fit {_size(fit)}"
    return f"{what}: {_size(-short)} left of {_size(fit)}, less than one token's KV cache"


def _size(value: int) -> str:
    return f"{value:,} bytes ({units.binary(value)}, {units.decimal_bytes(value)})"


def _fit_notes(subjects: Sequence[Subject], facts: Sequence[dict[str, Any]], fit: int | None) -> list[str]:
    if fit is None:
        return []
    if len(facts) > 1:
        return [f"max ctx, max batch: the largest that fit {_size(fit)}; –: not even 1 does."]
    found, work, trained = facts[0]["fit"], facts[0]["workload"], subjects[0].context
    context, batch = found["largest_context"], found["largest_batch"]
    past = f", past the trained {trained:,}" if context > trained else ""
    at_batch = f"at batch {work['batch']:,} a context of up to {context:,}{past}"
    notes = [f"In {_size(fit)} fits {at_batch}: slack {_size(found['context_slack_bytes'])}."]
    if batch is None:
        return [*notes, f"At context {work['keys']:,} not even one sequence fits."]
    return [
        *notes,
        f"At context {work['keys']:,} a batch of up to {batch:,}: slack {_size(found['batch_slack_bytes'])}.",
    ]


def _one(subject: Subject, request: Request, stored: str, cached: str, facts: dict[str, Any]) -> Table:
    columns = (
        Column("what", "what"),
        Column("elements", "elements", "params"),
        Column("dtype", "dtype", drop=3),
        Column("bytes", "bytes", "bytes"),
        Column("gigabytes", "in GB", "gigabytes", drop=4),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    total, ledger = facts["total_bytes"], subject.ledger
    at = request.workload(subject.context).axes()

    def rows(elements: dict[str, int], taken: dict[str, int], dtype: str) -> tuple[Row, ...]:
        return tuple(
            common.with_share(
                {"what": what, "elements": elements[what], "dtype": dtype, "bytes": size, "gigabytes": size},
                size,
                total,
            )
            for what, size in taken.items()
        )

    bits = units.dtype_bits(stored)
    weights = rows(common.by_part(ledger.parameters()), common.by_part(ledger.weight_bytes(bits)), stored)
    states = {common.short(path): elements for path, elements in ledger.states(at).items()}
    sizes = ledger.state_bytes(at, units.dtype_bits(cached))
    cache = rows(states, {common.short(path): size for path, size in sizes.items()}, cached)
    totals = (
        {"what": "weights", "elements": facts["total_params"], **_sized(facts["weights_bytes"], total)},
        {"what": "KV cache", "elements": sum(states.values()), **_sized(facts["kv_cache_bytes"], total)},
        {"what": "total", **_sized(total, total)},
        {"what": "KV / token", **_sized(facts["kv_bytes_per_token"], None)},
    )
    return columns, (weights, cache), totals


def _sized(taken: int, whole: int | None) -> dict[str, Any]:
    return {"bytes": taken, "gigabytes": taken, "share": Fraction(taken, whole) if whole else None}


def _several(subjects: Sequence[Subject], facts: Sequence[dict[str, Any]], fit: int | None) -> Table:
    fitting = (Column("largest_context", "max ctx", "count"), Column("largest_batch", "max batch", "count"))
    columns = (
        Column("model", "model"),
        Column("total_params", "params", "params", drop=2),
        Column("weights_bytes", "weights", "bytes"),
        Column("keys", "context", "count"),
        Column("kv_bytes_per_token", "KV / token", "bytes", drop=1 if fit is not None else 0),
        Column("kv_cache_bytes", "KV cache", "bytes"),
        Column("total_bytes", "total", "bytes"),
        *(fitting if fit is not None else ()),
    )
    rows: list[Row] = []
    for subject, fact in zip(subjects, facts, strict=True):
        row = {**fact, "model": common.name_of(subject), "keys": fact["workload"]["keys"]}
        for key in ("largest_context", "largest_batch") if fit is not None else ():
            row[key] = fact["fit"][key] or "–"
        rows.append(row)
    return columns, (tuple(rows),), ()
