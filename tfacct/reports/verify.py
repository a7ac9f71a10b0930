"""The formulas against models that run: path by path, block by block, exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.lines import CHUNK
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table, Tick, unwatched
from tfacct.reports import compose, conventions, counting
from tfacct.verify.checks import Check, checks, in_one_go, traced_blocks

Pair: TypeAlias = tuple[int | None, int | None]
"""Formula and measurement; None where one side does not know the path."""


@record
class _Verified:
    """One model, and what every witness said of it."""

    subject: LoadedModel
    work: Workload
    checks: list[Check]
    traced: tuple[int, int]

    @property
    def agrees(self) -> bool:
        return all(check.agrees for check in self.checks)


def verify(
    subjects: Sequence[LoadedModel],
    request: Request,
    *,
    all_layers: bool = False,
    against: str | None = None,
    progress: Tick = unwatched,
) -> Report:
    """Ask every witness about each model, on meta at full size, and compare exactly. Needs torch and fvcore.

    `all_layers` runs every block instead of one of each kind; `against` may be `transformers`.
    """
    if against not in (None, "transformers"):
        raise UsageError(f"{option('against')} knows transformers, not {against!r}")
    subjects, stepless = counting.steppable(subjects, request)
    verified: list[_Verified] = []
    asked_for = [_within_reach(subject, request) for subject in subjects]
    with in_one_go():
        for done, (subject, own) in enumerate(zip(subjects, asked_for, strict=True)):
            progress(subject.name, done, len(subjects))
            work = counting.workload(subject, own)
            asked = _ask(subject, work, all_layers, against is not None)
            verified.append(_Verified(subject, work, asked, traced_blocks(subject, all_layers)))
    one = verified[0] if len(verified) == 1 else None
    table = _one(one) if one else _several(verified)
    what = f"{compose.name_of(subjects[0])}: formulas" if one else "Formulas"
    return compose.report(
        "verify",
        subjects,
        table,
        [_facts(v) for v in verified],
        title=_title(what, compose.of_workload(subjects, asked_for[0] if one else request)),
        convention=conventions.products_convention(request, False, subjects),
        answer=verdict([(v.subject, v.checks) for v in verified]),
        notes=lambda at: _notes(verified[at], all_layers),
        requests=asked_for,
        defaults=[],
        hints=_classless(subjects) if against else (),
        left_out=stepless,
        headline="total_flops",
        agrees=all(v.agrees for v in verified),
    )


IN_CHUNKS = 1024
"""Tokens at which a model that runs in chunks is asked, where no context was named: its reference model loops over the
chunks, and holds a matrix for each."""


def _within_reach(subject: LoadedModel, request: Request) -> Request:
    """The request, at fewer tokens where a recurrence in chunks would take gigabytes."""
    if request.ctx is not None or not any(CHUNK in group.axes for group in subject.ledger.groups):
        return request
    return replace(request, ctx=min(subject.context, IN_CHUNKS))


def _title(what: str, of: str) -> str:
    return f"{what} {of}, against witnesses" if of.startswith("of ") else f"{what} against witnesses {of}"


def _notes(verified: Sequence[_Verified], all_layers: bool) -> list[str]:
    return [
        _traced(verified, all_layers),
        *dict.fromkeys(check.note for v in verified for check in v.checks if check.note),
    ]


def _classless(subjects: Sequence[LoadedModel]) -> list[str]:
    """Says whose class could not be asked, because there is none."""
    names = [subject.name for subject in subjects if not subject.config.hf_modules]
    return [f"hint: transformers has no class for {', '.join(names)}"] if names else []


def _ask(subject: LoadedModel, work: Workload, all_layers: bool, against: bool) -> list[Check]:
    try:
        return checks(subject, work, all_layers=all_layers, against=against)
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise UsageError(
            f"{subject.name}: tensors of {work.tokens:,} × {work.context:,} are larger than torch can describe",
            f"a smaller {option('ctx')} or {option('batch')}",
        ) from None


def _facts(verified: _Verified) -> dict[str, Any]:
    fvcore = verified.checks[0]
    formula, measured = fvcore.totals
    return {
        "workload": counting.workload_facts(verified.work),
        "agrees": verified.agrees,
        "blocks_traced": verified.traced[0],
        "block_count": verified.traced[1],
        "total_flops": formula,
        "measured_flops": measured,
        "expected_params": verified.subject.expected,
        "witnesses": [witness_facts(check) for check in verified.checks],
        "lines": [
            {"path": path, "flops": pair[0], "measured_flops": pair[1], "equal": pair[0] == pair[1]}
            for path, pair in fvcore.pairs().items()
        ],
    }


def witness_facts(check: Check) -> dict[str, Any]:
    """A check as it stands in the JSON."""
    return {
        "witness": check.witness,
        "unit": check.unit,
        "counted": check.totals[0],
        "measured": check.totals[1],
        "equal": check.agrees,
        "differing": {path: list(pair) for path, pair in check.pairs().items() if pair[0] != pair[1]},
    }


def _one(verified: _Verified) -> Table:
    columns = (
        Column("what", "operation"),
        Column("formula", "formula", "count"),
        Column("measured", "measured", "count"),
        Column("verdict", "", "verdict"),
    )
    fvcore, *others = verified.checks
    further: dict[str, tuple[Pair, bool]] = {}
    for check in others:
        further[check.witness] = check.totals, check.agrees
        if len(check.formula) > 1:
            further |= {path: (pair, False) for path, pair in check.pairs().items() if pair[0] != pair[1]}
    total = {"total FLOPs by fvcore": (fvcore.totals, fvcore.agrees)}
    return columns, (rows(folded(fvcore.pairs())), rows(total), rows(further)), ()


def folded(pairs: Mapping[str, Pair], starred: Callable[[str], str] = paths.starred) -> dict[str, tuple[Pair, bool]]:
    """All blocks of a path in one row where every block agrees; a block that differs keeps its own."""
    folded: dict[str, tuple[Pair, bool]] = {}
    for path, (formula, measured) in pairs.items():
        if formula != measured or formula is None:
            folded[path] = (formula, measured), False
            continue
        name = starred(path)
        before = folded[name][0][0] or 0 if name in folded else 0
        folded[name] = (before + formula, before + formula), True
    return folded


def rows(pairs: Mapping[str, tuple[Pair, bool]]) -> tuple[Row, ...]:
    """Both sides of every path, and the verdict."""
    return tuple(
        {"what": what, "formula": pair[0], "measured": pair[1], "verdict": word(pair, agrees)}
        for what, (pair, agrees) in pairs.items()
    )


def word(pair: Pair, agrees: bool) -> str:
    """Verdict on a path."""
    formula, measured = pair
    if agrees:
        return "ok"
    if formula is None or measured is None:
        return "not in the formula" if formula is None else "not measured"
    return f"DIFFERS by {measured - formula:+,}" if measured != formula else "DIFFERS in parts"


def _several(verified: Sequence[_Verified]) -> Table:
    columns = (
        Column("model", "model"),
        Column("formula", "formula (FLOPs)", "count"),
        Column("measured", "fvcore (2 × MACs)", "count"),
        Column("witnesses", "checks", "count", drop=2),
        Column("verdict", "", "verdict"),
    )
    rows = tuple(
        {
            "model": compose.name_of(v.subject),
            "formula": v.checks[0].totals[0],
            "measured": v.checks[0].totals[1],
            "witnesses": len(v.checks),
            "verdict": "ok" if v.agrees else "DIFFERS",
        }
        for v in verified
    )
    return columns, (rows,), ()


def _traced(verified: Sequence[_Verified], all_layers: bool) -> str:
    run, blocks = (sum(v.traced[side] for v in verified) for side in (0, 1))
    if all_layers:
        return f"Traced all {blocks:,} blocks, at full size on the meta device."
    return (
        f"Traced {run:,} of {blocks:,} blocks, one of each kind, at full size on the meta device; --all-layers traces"
        " them all."
    )


def verdict(verified: Sequence[tuple[LoadedModel, Sequence[Check]]], how: str = "path by path") -> str:
    """Whether all checks agree, and which do not."""
    every = [check for _, checks in verified for check in checks]
    wrong = {subject.name: [c.witness for c in checks if not c.agrees] for subject, checks in verified}
    if said := [f"{name} ({', '.join(witnesses)})" for name, witnesses in wrong.items() if witnesses]:
        return f"{sum(not check.agrees for check in every):,} of {len(every):,} checks differ: {'; '.join(said)}."
    return f"All {len(every):,} checks agree exactly, {how}." if len(every) > 1 else f"The check agrees exactly, {how}."
