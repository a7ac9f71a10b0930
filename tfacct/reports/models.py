"""The presets, and one model's config with where each field came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfacct.report import Column, Report, Row
from tfacct.reports import _common as common
from tfacct.subject import WITNESSES, Provenance, Subject


def models(subjects: Sequence[Subject]) -> Report:
    """Every preset with its shape and source."""
    columns = (
        Column("model", "model"),
        Column("family", "family"),
        Column("total_params", "params", "params"),
        Column("context", "context", "count"),
        Column("layers", "layers", "count", drop=1),
        Column("hidden", "hidden", "count", drop=2),
        Column("heads", "heads", "count", drop=3, empty="–"),
        Column("kv_heads", "KV heads", "count", drop=3, empty="–"),
        Column("from", "fields", drop=4),
        Column("expected_from", "checked against", drop=5),
    )
    facts = tuple(_facts(subject) for subject in subjects)
    return Report(
        command="models",
        title=f"{len(subjects)} presets",
        columns=columns,
        sections=(facts,),
        notes=("`tfacct show MODEL` prints a model's config and where it comes from.",),
        models=facts,
        convention="unique tensors, a tied head once",
    )


def _facts(subject: Subject) -> dict[str, Any]:
    shape, source = subject.architecture, subject.provenance
    return {
        "model": subject.name,
        "family": subject.family,
        "total_params": sum(subject.ledger.parameters().values()),
        "context": subject.context,
        "layers": sum(stack.count for stack in shape.every_stack),
        "hidden": shape.embed.hidden,
        "heads": shape.attention and shape.attention.heads,
        "kv_heads": shape.attention and shape.attention.kv_heads,
        "from": source.kind if source else None,
        "url": (source.url or None) if source else None,
        "expected_from": source.expected_from if source else None,
    }


def show(subject: Subject) -> Report:
    """One model's config, field by field: read, defaulted, harmless or unknown; and its source."""
    import json

    read = set(type(subject.config).counted())
    read |= {alias for alias, name in subject.config.aliases.items() if name in read}
    rows: list[Row] = []
    for name in (*subject.raw, *subject.defaulted):
        if any(row["field"] == name for row in rows):
            continue
        value = subject.defaulted.get(name, subject.raw.get(name))
        rows.append({"field": name, "how": _how(subject, name, name in read), "value": _shortened(json.dumps(value))})
    counted = tuple(row for row in rows if row["field"] in read)
    others = tuple(row for row in rows if row["field"] not in read)
    return Report(
        command="show",
        title=f"{common.name_of(subject)}: {subject.family}",
        columns=(Column("field", "field"), Column("how", ""), Column("value", "value")),
        sections=tuple(section for section in (counted, others) if section),
        notes=tuple(_source_notes(subject.provenance)),
        hints=tuple(common.unknown_hints([subject])),
        models=(
            {
                **common.model_facts(subject),
                "config": dict(subject.raw),
                "unknown": list(subject.unknown),
                "source": _source(subject.provenance),
            },
        ),
        convention="defaulted: fields left to the class's default; the rest as given",
    )


def _shortened(value: str) -> str:
    """A long value's beginning: the JSON has all of it."""
    return value if len(value) <= 24 else f"{value[:23]}…"


def _how(subject: Subject, name: str, read: bool) -> str:
    if name in subject.changed:
        return "set"
    if name in subject.defaulted:
        return "defaulted"
    if read:
        return "given"
    return "unknown" if name in subject.unknown else "no effect"


def _source(provenance: Provenance | None) -> dict[str, Any] | None:
    if provenance is None:
        return None
    return {
        "url": provenance.url or None,
        "kind": provenance.kind,
        "via": provenance.via,
        "revision": provenance.revision,
        "expected_params": provenance.expected,
        "expected_from": provenance.expected_from or None,
    }


def _source_notes(provenance: Provenance | None) -> list[str]:
    if provenance is None:
        return ["source: your own file"]
    via = f" (through {provenance.via})" if provenance.via else ""
    at = f" at {provenance.revision}" if provenance.revision else ""
    where = provenance.url or provenance.about or "the preset's file"
    notes = [f"source: {where}, {provenance.kind}{at}{via}"]
    if provenance.expected is not None:
        notes.append(f"expected parameters: {provenance.expected:,} ({WITNESSES[provenance.expected_from]})")
    return notes
