"""The formulas against a model that runs: path by path, block by block, exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tfacct.errors import MissingExtraError
from tfacct.ledger import FLOPS_PER_MULTIPLY_ADD
from tfacct.report import Column, Report, Row, Table, Tick, unwatched
from tfacct.reports import _common as common
from tfacct.subject import Subject
from tfacct.workload import Request, Workload

CONVENTION = "2 FLOPs per multiply-add; products only; full T x S attention; all logits"

Pair: TypeAlias = tuple[int | None, int | None]
"""Formula and measurement; None where one side does not know the path."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """Formula and measurement of one model, by path, no two blocks together."""

    subject: Subject
    work: Workload
    flops: dict[str, Pair]
    params: dict[str, Pair]

    @property
    def agrees(self) -> bool:
        """Whether every path is in both, with the same number, and the expected total is met."""
        pairs = (*self.flops.values(), *self.params.values())
        return all(formula == measured for formula, measured in pairs) and self.expectation_met

    @property
    def expectation_met(self) -> bool:
        return self.subject.expected in (None, self.total(self.params, 0))

    @staticmethod
    def total(pairs: Mapping[str, Pair], side: int) -> int:
        """The sum of one side: 0 the formula's, 1 the measured."""
        return sum(pair[side] or 0 for pair in pairs.values())


def verify(subjects: Sequence[Subject], request: Request, *, progress: Tick = unwatched) -> Report:
    """Count each reference model with fvcore, on meta at full size, and compare. Needs torch and fvcore."""
    compared = []
    for done, subject in enumerate(subjects):
        progress(subject.name, done, len(subjects))
        compared.append(_compare(subject, request))
    one = compared[0] if len(compared) == 1 else None
    columns, sections, totals = _one(one) if one else _several(compared)
    who = common.name_of(subjects[0]) if one else "presets"
    return Report(
        command="verify",
        title=f"{who}: formula against fvcore at {common.workload_words(subjects, request)}",
        columns=columns,
        sections=sections,
        totals=totals,
        notes=(_verdict(compared),),
        hints=(*common.context_hints(subjects, request), *common.unknown_hints(subjects)),
        models=tuple(_facts(c) for c in compared),
        convention=CONVENTION,
        headline="total_flops",
        agrees=all(c.agrees for c in compared),
    )


def _compare(subject: Subject, request: Request) -> _Compared:
    try:
        from tfacct.reference import counting, model
    except ImportError:
        raise MissingExtraError("verify needs torch and fvcore", MissingExtraError.MEASURE) from None
    work = request.workload(subject.context)
    reference = model.build(subject.architecture, logits=work.logits)
    given = model.inputs(subject.architecture, batch=work.batch, tokens=work.tokens, context=work.context)
    multiply_adds = counting.multiply_adds(reference, given)
    measured = {path: FLOPS_PER_MULTIPLY_ADD * count for path, count in multiply_adds.items()}
    return _Compared(
        subject,
        work,
        flops=_side_by_side(subject.ledger.flops(work.axes(), unfolded=True), measured),
        params=_side_by_side(subject.ledger.parameters(unfolded=True), counting.parameters(reference)),
    )


def _side_by_side(formula: Mapping[str, int], measured: Mapping[str, int]) -> dict[str, Pair]:
    return {path: (formula.get(path), measured.get(path)) for path in dict.fromkeys((*formula, *measured))}


def _facts(compared: _Compared) -> dict[str, Any]:
    return {
        **common.model_facts(compared.subject),
        "workload": common.workload_facts(compared.work),
        "agrees": compared.agrees,
        "total_flops": compared.total(compared.flops, 0),
        "measured_flops": compared.total(compared.flops, 1),
        "total_params": compared.total(compared.params, 0),
        "measured_params": compared.total(compared.params, 1),
        "expected_params": compared.subject.expected,
        "lines": [
            {"path": path, "flops": formula, "measured_flops": measured, "equal": formula == measured}
            for path, (formula, measured) in compared.flops.items()
        ],
        "parameters": [
            {"path": path, "params": formula, "measured_params": measured, "equal": formula == measured}
            for path, (formula, measured) in compared.params.items()
        ],
    }


_COLUMNS = (
    Column("what", "operation"),
    Column("formula", "formula", "count"),
    Column("measured", "measured", "count"),
    Column("verdict", ""),
)


def _one(compared: _Compared) -> Table:
    params: dict[str, Pair] = {"parameters": (compared.total(compared.params, 0), compared.total(compared.params, 1))}
    params |= {path: pair for path, pair in compared.params.items() if pair[0] != pair[1]}
    if compared.subject.expected is not None:
        params["parameters, as expected"] = (params["parameters"][0], compared.subject.expected)
    total = (compared.total(compared.flops, 0), compared.total(compared.flops, 1))
    return (
        _COLUMNS,
        (_rows(_folded(compared.flops)), _rows(params)),
        _rows({"total FLOPs": total}),
    )


def _folded(
    pairs: Mapping[str, Pair],
) -> dict[str, Pair]:
    """All blocks of a path in one row where every block agrees; a block that differs keeps its own."""
    folded: dict[str, Pair] = {}
    for path, (formula, measured) in pairs.items():
        block, _, rest = path.removeprefix("blocks.").partition(".")
        name = f"blocks.*.{rest}" if block.isdigit() and formula == measured else path
        before = folded.get(name, (0, 0))
        if formula == measured:
            folded[name] = ((before[0] or 0) + (formula or 0), (before[1] or 0) + (measured or 0))
        else:
            folded[name] = (formula, measured)
    return folded


def _rows(pairs: Mapping[str, Pair]) -> tuple[Row, ...]:
    return tuple(
        {"what": path, "formula": formula, "measured": measured, "verdict": _word(formula, measured)}
        for path, (formula, measured) in pairs.items()
    )


def _word(formula: int | None, measured: int | None) -> str:
    if formula == measured:
        return "ok"
    if formula is None or measured is None:
        return "not in the formula" if formula is None else "not measured"
    return f"DIFFERS by {measured - formula:+,}"


def _several(
    compared: Sequence[_Compared],
) -> Table:
    columns = (
        Column("model", "model"),
        Column("paths", "products", "count", drop=1),
        Column("formula", "formula (FLOPs)", "count"),
        Column("measured", "measured (2 × MACs)", "count"),
        Column("params", "params", "count", drop=2),
        Column("verdict", ""),
    )
    rows = tuple(
        {
            "model": common.name_of(c.subject),
            "paths": len(c.flops),
            "formula": c.total(c.flops, 0),
            "measured": c.total(c.flops, 1),
            "params": c.total(c.params, 1),
            "verdict": "ok" if c.agrees else "DIFFERS",
        }
        for c in compared
    )
    return columns, (rows,), ()


def _verdict(compared: Sequence[_Compared]) -> str:
    wrong = [c.subject.name for c in compared if not c.agrees]
    if wrong:
        return f"Differs: {', '.join(wrong)}. Ask for one alone to see the paths that do."
    products, tensors = sum(len(c.flops) for c in compared), sum(len(c.params) for c in compared)
    return f"Every product of every block ({products:,}) and every parameter ({tensors:,} tensors) agrees exactly."
