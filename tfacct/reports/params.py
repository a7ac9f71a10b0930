"""Parameters, tensor by tensor; every tensor once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any

from tfacct.architecture import is_table
from tfacct.ledger import Tensor
from tfacct.report import Column, Report, Row, Table
from tfacct.reports import _common as common
from tfacct.reports._lines import stored
from tfacct.subject import WITNESSES, Subject

CONVENTION = "unique tensors, a tied head once; every stored parameter, embeddings and norms included"


def params(subjects: Sequence[Subject]) -> Report:
    """Stored parameters by tensor for one model, by part for several."""
    facts = tuple(_facts(subject) for subject in subjects)
    if len(subjects) == 1:
        columns, sections, totals = _one(subjects[0], facts[0])
        title = f"{common.name_of(subjects[0])}: parameters"
        tied = _witness_notes(facts[0])
    else:
        columns, sections, totals = _several(subjects, facts)
        title = "Parameters by part"
        tied = ["A tied head has no parameters of its own: its weight is the embedding."]
    return Report(
        command="params",
        title=title,
        columns=columns,
        sections=sections,
        totals=totals,
        notes=(
            "Every stored tensor once, biases and norms included.",
            *tied,
            *(common.expert_notes(subjects)),
            *_untrained(subjects),
            *common.defaulted_notes(subjects),
        ),
        hints=(*_differing(facts), *common.unknown_hints(subjects)),
        models=facts,
        convention=CONVENTION,
        headline="total_params",
    )


def _facts(subject: Subject) -> dict[str, Any]:
    tensors = stored(subject.ledger.tensors())
    total = sum(_in_all(tensor) for tensor in tensors)
    embedding = sum(_in_all(tensor) for tensor in tensors if is_table(tensor.path))
    active = sum(subject.ledger.active_parameters().values())
    return {
        **common.model_facts(subject),
        "total_params": total,
        "embedding_params": embedding,
        "non_embedding_params": total - embedding,
        "active_params": active,
        "active_non_embedding_params": active - embedding,
        "tied_head": subject.architecture.head.tied,
        "expected_params": subject.expected,
        "expected_from": subject.provenance.expected_from if subject.provenance and subject.expected else None,
        "lines": [
            {
                "path": tensor.path,
                "shape": list(tensor.shape),
                "times": tensor.count,
                "params": _in_all(tensor),
            }
            for tensor in tensors
        ],
    }


def _differing(facts: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"warning: {fact['model']}: {fact['total_params']:,} parameters, but {fact['expected_params']:,} are expected"
        for fact in facts
        if fact["expected_params"] not in (None, fact["total_params"])
    ]


def _in_all(tensor: Tensor) -> int:
    return int(tensor.count * tensor.elements)


def _one(subject: Subject, facts: dict[str, Any]) -> Table:
    columns = (
        Column("parameter", "parameter"),
        Column("shape", "shape", "dims", drop=3),
        Column("times", "times", "count"),
        Column("params", "params", "params"),
        Column("share", "share", "share"),
        Column("bar", "", "bar", drop=5),
    )
    total = facts["total_params"]
    sections = []
    for _, tensors in groupby(stored(subject.ledger.tensors()), key=lambda tensor: tensor.path.rsplit(".", 2)[0]):
        rows: list[Row] = []
        for tensor in tensors:
            params = _in_all(tensor)
            row = {"parameter": common.short(tensor.path), "shape": tensor.shape, "times": tensor.count}
            rows.append(common.with_share({**row, "params": params}, params, total))
        sections.append(tuple(rows))
    totals: list[Row] = [
        {"parameter": "total", "params": total, "share": Fraction(1)},
        {
            "parameter": "embedding",
            "params": facts["embedding_params"],
            "share": Fraction(facts["embedding_params"], total),
        },
        {
            "parameter": "non-embedding",
            "params": facts["non_embedding_params"],
            "share": Fraction(facts["non_embedding_params"], total),
        },
    ]
    if facts["active_params"] != total:
        for name, key in (("active", "active_params"), ("active, non-embedding", "active_non_embedding_params")):
            totals.append({"parameter": name, "params": facts[key], "share": Fraction(facts[key], total)})
    return columns, tuple(sections), tuple(totals)


def _untrained(subjects: Sequence[Subject]) -> list[str]:
    """Names the tables that are stored but not trained."""
    tables = {
        tensor.path: tensor.elements
        for subject in subjects
        if (positions := subject.architecture.positions) is not None and not positions.trained
        for tensor in subject.ledger.tensors()
        if tensor.path.endswith("pos_embed.weight")
    }
    if not tables:
        return []
    return [f"Stored, and counted, but not trained: {', '.join(tables)}, sines and cosines."]


def _witness_notes(facts: dict[str, Any]) -> list[str]:
    notes = []
    if facts["tied_head"]:
        notes.append("lm_head is tied to embed: one table, counted once, as embedding.")
    else:
        notes.append("lm_head is not tied: it has its own weight, counted as non-embedding.")
    expected = facts["expected_params"]
    if expected is not None:
        source = WITNESSES[facts["expected_from"]]
        verdict = "equal" if expected == facts["total_params"] else f"differs by {facts['total_params'] - expected:+,}"
        notes.append(f"{source}: {expected:,} ({verdict})")
    return notes


def _several(subjects: Sequence[Subject], facts: Sequence[dict[str, Any]]) -> Table:
    rows: list[dict[str, Any]] = []
    routed = any(fact["active_params"] != fact["total_params"] for fact in facts)
    for subject, fact in zip(subjects, facts, strict=True):
        row: dict[str, Any] = {"model": common.name_of(subject), "total": fact["total_params"]}
        row["active"] = fact["active_params"]
        row["expected_params"] = fact["expected_params"]
        rows.append(row | common.by_part(subject.ledger.parameters()))
    columns = (
        Column("model", "model"),
        Column("total", "params", "params"),
        *((Column("active", "active", "params", drop=2),) if routed else ()),
        *(
            Column(part, part, "params", drop=1 if part == "pos_embed" else 0)
            for part in common.PARTS
            if any(part in row for row in rows)
        ),
        Column("expected_params", "expected", "params", drop=3),
    )
    return columns, (tuple(rows),), ()
