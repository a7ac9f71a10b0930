"""What every proof prints: a row and a fact of each statement, the formulas, and the letters that stand in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row
from tfacct.reports import compose
from tfacct.verify.proof import By, Proven

DTYPES = ("bf16", "fp32")
"""Those in which what a training step keeps is proven, where none is named."""


def formulas(statements: Sequence[Proven]) -> dict[str, str]:
    """Formulas as they are written, by what they count; a second witness of one writes it no second time."""
    return {p.what: p.formula.written.text for p in statements if p.formula is not None and "," not in p.what}


def proof_report(
    subject: LoadedModel,
    statements: Sequence[Proven],
    *,
    by: By,
    legend: Mapping[str, str],
    means: Iterable[str],
    title: str,
    convention: str,
    counted: str = "",
    model: str = "model",
    hints: Iterable[str] = (),
) -> Report:
    """A proof as a report. `means`: sentences that say what the statements mean. `model` is whose counts the formulas
    were held against."""
    holds = all(each.holds for each in statements)
    columns = (
        Column("what", "count"),
        Column("difference", f"{model} − formula"),
        Column("evidence", "assumptions" if by == "symbols" else "counted by"),
        Column("verdict", "", "verdict"),
    )
    rows: list[Row] = [
        {
            "what": each.what,
            "difference": each.difference,
            "evidence": each.evidence,
            "verdict": "proven" if each.holds else "NOT PROVEN",
        }
        for each in statements
    ]
    fact = {
        "by": by,
        "proven": holds,
        "legend": {letter: {"meaning": meaning} for letter, meaning in legend.items()},
        "statements": [
            {
                "what": each.what,
                "formula": None if each.formula is None else str(each.formula.expression),
                "difference": each.difference,
                "evidence": each.evidence,
                "proven": each.holds,
            }
            for each in statements
        ],
    }
    notes = (
        *(f"{what} = {text}" for what, text in formulas(statements).items()),
        "; ".join(f"{letter} {meaning}" for letter, meaning in legend.items()),
        *means,
    )
    return compose.report(
        "verify",
        [subject],
        (columns, (tuple(rows),), ()),
        [fact],
        title=f"{subject.family}: {title}",
        answer="Proven: both are the same polynomial in every size." if holds else "Not proven.",
        convention=convention,
        counted=counted,
        notes=lambda _: notes,
        hints=hints,
        defaults=[],
        agrees=holds,
        record="verify-prove",
    )
