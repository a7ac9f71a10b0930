"""KV-cache bytes by context: as built, beside the same model with every head its own keys (MHA) and with one (MQA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tfacct import units
from tfacct.ledger import Ledger
from tfacct.lines import WINDOW, State
from tfacct.memory import cache_bytes, token_bytes
from tfacct.metrics import Point, cache_overtakes
from tfacct.notation import letters
from tfacct.parts import LatentAttention
from tfacct.report import Column, Report, Table
from tfacct.reports import _common as common
from tfacct.reports import _kinds as kinds
from tfacct.subject import Subject
from tfacct.workload import Request, Workload

ONE = Workload(context=1, tokens=1)
"""One token of one sequence, and no source."""
CONVENTION = "bytes an engine must keep for every token of the context; weights left out"
STATE = "bytes an engine must keep between steps, the same at every context; weights left out"


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
        title=f"{who}{kinds.kept(subjects)} in {cached}, {where}",
        columns=columns,
        sections=sections,
        totals=totals,
        notes=(
            *notes,
            *(_overtaken(subjects[0], facts[0], cached) if len(subjects) == 1 else ()),
            *_sharing(subjects),
            *kinds.state_notes(subjects),
            *_crossing(facts),
            *common.window_notes(subjects, kept=True),
            *common.latent_notes(subjects),
            *common.defaulted_notes(subjects),
        ),
        hints=(*common.context_hints(subjects, request), *common.unknown_hints(subjects), *left_out),
        models=facts,
        convention=CONVENTION if kinds.attends(subjects) else STATE,
        headline="kv_cache_bytes",
    )


def _facts(subject: Subject, request: Request, cached: str) -> dict[str, Any]:
    work = common.workload(subject, request)
    variants = _variants(subject)
    by_context = [_at(variants, replace(work, context=context), cached) for context in _contexts(work.context)]
    attention, bits = subject.architecture.attention, units.dtype_bits(cached)
    own = cache_bytes(subject.ledger, replace(work, source=0).axes(), bits)
    cross = by_context[-1]["as_built"] - own
    return {
        **common.model_facts(subject),
        "workload": common.workload_facts(work, dtype=cached),
        "query_heads": attention and attention.heads,
        "kv_heads": attention and attention.kv_heads,
        "kv_bytes_per_token": token_bytes(subject.ledger, work.axes(), bits),
        "kv_cache_bytes": by_context[-1]["as_built"],
        "self_kv_cache_bytes": own,
        "cross_kv_cache_bytes": cross,
        "lines": by_context,
    }


def _sharing(subjects: Sequence[Subject]) -> list[str]:
    if not kinds.attends(subjects):
        return []
    if len(subjects) == 1 and _latent(subjects[0]):
        return ["MHA: the keys and values of each query head are kept, not the latent that they come from."]
    return ["MHA: each query head has its own keys and values. MQA: all share one. The queries stay as they are."]


def _overtaken(subject: Subject, fact: dict[str, Any], cached: str) -> list[str]:
    """Where the cache outgrows the weights, both in the cache's dtype."""
    if subject.quantized or not kinds.attends([subject]):
        return []
    bits, batch = units.dtype_bits(cached), fact["workload"]["batch"]
    step = Workload(1, 1, batch, source=fact["workload"]["source"] or 0)
    context = cache_overtakes(Point(subject.ledger, step, bits, bits))
    if context is None:
        return []
    return [f"From context {context:,} on, the cache at batch {batch:,} takes more than the weights in {cached}."]


def _crossing(facts: Sequence[dict[str, Any]]) -> list[str]:
    """What of one model's cache is of the source."""
    if len(facts) != 1 or not facts[0]["cross_kv_cache_bytes"]:
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


def _variants(subject: Subject) -> dict[str, Ledger | None]:
    """The model with as many key/value heads as query heads, as it is built, and with one; None where it has none, or
    none to share."""
    built = subject.architecture
    heads = built.attention is not None
    each = built.with_kv_heads(None).ledger() if heads else None
    shared = built.with_kv_heads(1).ledger() if heads and not _latent(subject) else None
    return {"mha": each, "as_built": subject.ledger, "mqa": shared}


def _at(variants: Mapping[str, Ledger | None], work: Workload, cached: str) -> dict[str, Any]:
    """Cache bytes of each variant at the end of a step."""
    at, bits = work.axes(), units.dtype_bits(cached)
    sizes = {name: None if ledger is None else cache_bytes(ledger, at, bits) for name, ledger in variants.items()}
    return {"keys": work.context, **sizes}


def _latent(subject: Subject) -> bool:
    """Whether keys and values come from a latent, which no heads share."""
    return isinstance(subject.architecture.attention, LatentAttention)


def _one(subject: Subject, fact: dict[str, Any], cached: str) -> Table:
    if not kinds.attends([subject]):
        state = Column("keys", "context", "count"), Column("as_built", "state", "bytes")
        return state, (tuple(fact["lines"]),), ()
    columns: tuple[Column, ...] = (
        Column("keys", "context", "count"),
        Column("mha", f"MHA ({_heads(fact['query_heads'])})", "bytes"),
        Column("as_built", f"as built ({'latent' if _latent(subject) else _heads(fact['kv_heads'])})", "bytes"),
    )
    if not _latent(subject):
        columns = (*columns, Column("mqa", f"MQA ({_heads(1)})", "bytes"))
    return columns, (tuple(fact["lines"]),), ({**_at(_variants(subject), ONE, cached), "keys": "per token"},)


def _heads(count: int) -> str:
    return f"{count} KV head{'' if count == 1 else 's'}"


def _several(subjects: Sequence[Subject], facts: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column("model", "model"),
        Column("heads", "heads", "count", drop=2, empty="–"),
        Column("kv_heads", "KV heads", "count", drop=1, empty="–"),
        Column("kv_bytes_per_token", "KV / token", "bytes"),
        Column("keys", "context", "count"),
        Column("mha", "MHA", "bytes", empty="–"),
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
    what = kinds.kept([subject])
    return f"{what[0].upper()}{what[1:]} bytes: {' + '.join(name for name, _ in kept)} = {' + '.join(terms)}"
