"""The ledger as data: lines in letters, sizes as they are written, for programs that count in another language."""

from __future__ import annotations

from typing import Any

from tfacct.algebra.written import written
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row
from tfacct.reports import compose

_SAYS = ("weight", "bias", "mask", "bank", "bits", "unused")
"""What of a line a table names beside its letters."""


def ledger(subject: LoadedModel) -> Report:
    """Every line of one model, group by group: where it stands, its letters, and what is stored."""
    model = written(subject.architecture)
    meanings = {letter: {"meaning": meaning} for letter, meaning in model.legend.items()}
    columns = (
        Column("blocks", "blocks"),
        Column("path", "path"),
        Column("line", "line", drop=1),
        Column("spec", "letters", "spec"),
        Column("with", "with", drop=1),
    )
    sections = tuple(_rows(way, group) for way in model.ways for group in way["groups"] if group["lines"])
    lines = sum(map(len, sections))
    return compose.report(
        "show",
        [subject],
        (columns, sections, ()),
        [{"sizes": model.sizes, "legend": meanings, "ways": model.ways}],
        title=f"{compose.name_of(subject)}: {lines} lines in {len(sections)} groups",
        convention="sizes in letters; N = K*G is derived, and a changed K changes it",
        notes=lambda _: _notes(model.sizes, model.ways),
        defaults=[],
        record="show-ledger",
    )


def _rows(way: dict[str, Any], group: dict[str, Any]) -> tuple[Row, ...]:
    count = "" if group["count"] == 1 and not group["blocks"] else f"{group['count']} × "
    where = f"{count}{group['kind']}".removesuffix(" × ") if count or group["kind"] else ""
    stood = where if way["form"] is None else f"{where} ({way['form']})".strip()
    return tuple(
        {"blocks": stood, "path": line["path"], "line": line["line"], "spec": line["spec"], "with": _with(line)}
        for line in group["lines"]
    )


def _with(line: dict[str, Any]) -> str:
    said = (name if line[name] is True else f"{name} {line[name]}" for name in _SAYS if name in line)
    return ", ".join(said)


def _notes(sizes: dict[str, int], ways: list[dict[str, Any]]) -> list[str]:
    derived: dict[str, str] = {}
    for group in (group for way in ways for group in way["groups"]):
        for axis, size in group["axes"].items():
            name = group["names"].get(axis, axis)
            if str(size) != name:
                derived[name] = str(size).replace("*", " · ").replace("+", " + ")
    said = [", ".join(f"{letter} = {size:,}" for letter, size in sizes.items())]
    return [*said, *([", ".join(f"{letter} = {made}" for letter, made in derived.items())] if derived else [])]
