"""KV-cache bytes by context: as built, beside the same model with every head its own keys (MHA) and with one (MQA)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tfacct import units
from tfacct.lines import WINDOW, State
from tfacct.memory import cache_bytes
from tfacct.metrics import Point, cache_overtakes
from tfacct.notation import letters
from tfacct.parts import LatentAttention
from tfacct.report import Column, Report, Table
from tfacct.reports import _common as common
from tfacct.subject import Subject
from tfacct.workload import Request, Workload

ONE = Workload(context=1, tokens=1)
"""One token of one sequence, and no source."""
CONVENTION = "bytes an engine must keep for every token of the context; weights left out"


def kv(subjects: Sequence[Subject], request: Request, *, dtype: str | None = None) -> Report:
    """KV-cache bytes per token and by context, and what grouped queries save. Raises UsageError."""
    _, cached = common.dtypes(None, dtype)
    subjects, left_out = common.keeping(subjects)
    facts = tuple(_facts(subject, request, cached) for subject in subjects)
    columns, sections, totals = _one(subjects[0], facts[0], cached) if len(subjects) == 1 else _several(subjects, facts)
    who = f"{common.name_of(subjects[0])}: " if len(subjects) == 1 else ""
    where = f"batch {request.batch:,}" if len(subjects) == 1 else common.workload_words(subjects, request)
    notes = [_formula(subjects[0], request, cached)] if len(subjects) == 1 else []
    return Report(
        command="kv",
        title=f"{who}KV cache in {cached}, {where}",
        columns=columns,
        sections=sections,
        totals=totals,
        notes=(
            *notes,
            *(_overtaken(subjects[0], facts[0], cached) if len(subjects) == 1 else ()),
            _sharing(subjects),
            *_crossing(facts),
            *common.window_notes(subjects, kept=True),
            *common.latent_notes(subjects),
            *common.defaulted_notes(subjects),
        ),
        hints=(*common.context_hints(subjects, request), *common.unknown_hints(subjects), *left_out),
        models=facts,
        convention=CONVENTION,
        headline="kv_cache_bytes",
    )


def _facts(subject: Subject, request: Request, cached: str) -> dict[str, Any]:
    work = common.workload(subject, request)
    by_context = [_at(subject, replace(work, context=context), cached) for context in _contexts(work.context)]
    own = _at(subject, replace(work, source=0), cached)["as_built"]
    cross = by_context[-1]["as_built"] - own
    return {
        **common.model_facts(subject),
        "workload": common.workload_facts(work, dtype=cached),
        "query_heads": subject.architecture.attention.heads,
        "kv_heads": subject.architecture.attention.kv_heads,
        "kv_bytes_per_token": _at(subject, ONE, cached)["as_built"],
        "kv_cache_bytes": by_context[-1]["as_built"],
        **({"self_kv_cache_bytes": own, "cross_kv_cache_bytes": cross} if subject.source is not None else {}),
        "lines": by_context,
    }


def _sharing(subjects: Sequence[Subject]) -> str:
    if len(subjects) == 1 and _latent(subjects[0]):
        return "MHA: the keys and values of each query head are kept, not the latent that they come from."
    return "MHA: each query head has its own keys and values. MQA: all share one. The queries stay as they are."


def _overtaken(subject: Subject, fact: dict[str, Any], cached: str) -> list[str]:
    """Where the cache outgrows the weights, both in the cache's dtype."""
    if subject.quantized:
        return []
    bits, batch = units.dtype_bits(cached), fact["workload"]["batch"]
    step = Workload(1, 1, batch, source=fact["workload"]["source"] or 0)
    context = cache_overtakes(Point(subject.ledger, step, bits, bits))
    if context is None:
        return []
    return [f"From context {context:,} on, the cache at batch {batch:,} takes more than the weights in {cached}."]


def _crossing(facts: Sequence[dict[str, Any]]) -> list[str]:
    """What of one model's cache is of the source."""
    if len(facts) != 1 or "cross_kv_cache_bytes" not in facts[0]:
        return []
    cross, source = facts[0]["cross_kv_cache_bytes"], facts[0]["workload"]["source"]
    return [
        f"At every context {cross:,} bytes ({units.binary(cross)}) of it are cross keys and values, of a source of"
        f" {source:,} tokens; the rest are those of the tokens themselves."
    ]


def _contexts(longest: int) -> list[int]:
    """1k, 4k, 16k, … below the longest, and the longest."""
    contexts, context = [], 1024
    while context < longest:
        contexts.append(context)
        context *= 4
    return [*contexts, longest]


def _at(subject: Subject, work: Workload, cached: str) -> dict[str, Any]:
    """Cache bytes at the end of a step, for as many key/value heads as query heads, as built, and for one."""
    at = work.axes()
    built = subject.architecture
    shared = None if _latent(subject) else built.with_kv_heads(1)
    variants = {"mha": built.with_kv_heads(None), "as_built": built, "mqa": shared}
    bits = units.dtype_bits(cached)
    sizes = {name: model and cache_bytes(model.ledger(), at, bits) for name, model in variants.items()}
    return {"keys": work.context, **sizes}


def _latent(subject: Subject) -> bool:
    """Whether keys and values come from a latent, which no heads share."""
    return isinstance(subject.architecture.attention, LatentAttention)


def _one(subject: Subject, fact: dict[str, Any], cached: str) -> Table:
    columns: tuple[Column, ...] = (
        Column("keys", "context", "count"),
        Column("mha", f"MHA ({_heads(fact['query_heads'])})", "bytes"),
        Column("as_built", f"as built ({'latent' if _latent(subject) else _heads(fact['kv_heads'])})", "bytes"),
    )
    if not _latent(subject):
        columns = (*columns, Column("mqa", f"MQA ({_heads(1)})", "bytes"))
    return columns, (tuple(fact["lines"]),), ({**_at(subject, ONE, cached), "keys": "per token"},)


def _heads(count: int) -> str:
    return f"{count} KV head{'' if count == 1 else 's'}"


def _several(subjects: Sequence[Subject], facts: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column("model", "model"),
        Column("heads", "heads", "count", drop=2),
        Column("kv_heads", "KV heads", "count", drop=1),
        Column("kv_bytes_per_token", "KV / token", "bytes"),
        Column("keys", "context", "count"),
        Column("mha", "MHA", "bytes"),
        Column("as_built", "as built", "bytes"),
        Column("mqa", "MQA", "bytes", empty="–"),
    )
    rows = tuple(
        {**fact["lines"][-1], "model": common.name_of(subject), "heads": fact["query_heads"]}
        | {key: fact[key] for key in ("kv_heads", "kv_bytes_per_token")}
        for subject, fact in zip(subjects, facts, strict=True)
    )
    return columns, (rows,), ()


def _formula(subject: Subject, request: Request, cached: str) -> str:
    """The cache as a product of named sizes, read off the ledger's State lines, with S left open."""
    width = Fraction(units.dtype_bits(cached), 8)
    kept: dict[tuple[str, str], int] = {}
    for group in subject.ledger.groups:
        windowed = WINDOW in group.axes
        keys = f"min(S, {group.axes[WINDOW]:,})" if windowed else "S"
        sizes = {"B": request.batch, **group.axes, "S": keys, "J": "J"}
        states = [letters(line.spec) for line in group.lines if isinstance(line, State)]
        for spec in dict.fromkeys(states):
            alike = states.count(spec)
            named = ["min(S, W)" if windowed and axis == "S" else axis for axis in spec]
            name = " · ".join([*([str(alike)] if alike > 1 else []), "L", *named, "bytes"])
            values = " · ".join(str(sizes[axis]) for axis in spec)
            kept[name, values] = kept.get((name, values), 0) + alike * group.count
    terms = (f"{count} · {values} · {width}" for (_, values), count in kept.items())
    return f"KV cache bytes: {' + '.join(name for name, _ in kept)} = {' + '.join(terms)}"
