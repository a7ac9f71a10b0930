"""An equation solved: the largest context, batch or number of key heads before one side overtakes the other."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from math import isqrt
from typing import Any

from tfacct.equations import Equation, Side, read
from tfacct.errors import UsageError
from tfacct.metrics import Point
from tfacct.report import Column, Report, Row
from tfacct.reports import _common as common
from tfacct.reports._points import CONVENTION, Terms
from tfacct.solving import Solution, among, closed_form, decimal, placed, solved
from tfacct.subject import Subject
from tfacct.symbols import opened
from tfacct.workload import Request, new_tokens


def solve(subject: Subject, request: Request, *, unknown: str, until: str, terms: Terms | None = None) -> Report:
    """The last whole `unknown` (ctx, batch, num_key_value_heads) until `until`, such as `kv_cache_bytes=weights_bytes`.

    Exact: the answer is held against whole numbers on both sides of the boundary. Raises UsageError where there is
    no solution, or more than one. Needs sympy.
    """
    terms = terms or Terms()
    if unknown == "ctx" and request.ctx is not None:
        raise UsageError("--for ctx finds the context: leave --ctx out")
    if unknown == "num_key_value_heads":
        heads(subject)
    if unknown == "batch" and request.batch != 1:
        raise UsageError("--for batch finds the batch: leave --batch out")
    chunk = request.decode or request.tokens is not None
    if unknown == "ctx" and chunk:  # any context that holds the new tokens will do to begin with
        request = replace(request, ctx=max(subject.context, request.tokens or 1))
    work = common.workload(subject, request)
    equation = read(until, terms.point(subject, work))
    metrics = [side.metric for side in (equation.left, equation.right) if side.metric is not None]
    point = terms.point(subject, work, metrics)
    at = placed(unknown, subject.architecture, point, chunk=chunk)
    if unknown == "num_key_value_heads":
        found = among(unknown, equation, at, _divisors(heads(subject)))
        form = None
    else:
        found = solved(unknown, equation, at, work.tokens if unknown == "ctx" and chunk else 1)
        fixed = subject.config.fixed
        form = closed_form(unknown, equation, subject.architecture, point, chunk=chunk, fixed=fixed)
    points = {value: at(value) for value in (found.answer, found.beyond) if value is not None}
    return Report(
        command="solve",
        title=f"{common.name_of(subject)}: {unknown} until {equation}{_where(unknown, request, subject)}",
        columns=_columns(unknown, equation),
        sections=(tuple(_row(equation, value, there) for value, there in points.items()),),
        notes=(
            _answer(unknown, equation, found),
            *_closed(unknown, found, form, rounded=bool(point.bits % 8 or point.cache_bits % 8)),
            *_letters(form, subject),
            *terms.words([subject], metrics, request.logits),
            *common.window_notes([subject], masked=terms.masked),
            *common.defaulted_notes([subject]),
        ),
        hints=(
            *common.context_hints([subject], Request(ctx=found.answer) if unknown == "ctx" else request),
            *common.unknown_hints([subject]),
        ),
        models=(
            {
                **common.model_facts(subject),
                **terms.facts(points[found.answer].work),
                "for": unknown,
                "until": str(equation),
                "answer": found.answer,
                "beyond": found.beyond,
                "root": None if found.root is None else float(found.root),
                "closed_form": form,
                "lines": [_facts(unknown, equation, value, there) for value, there in points.items()],
            },
        ),
        convention=CONVENTION,
        headline="answer",
    )


def heads(subject: Subject) -> int:
    """Its query heads. Raises UsageError where there is no attention."""
    attention = subject.architecture.attention
    if attention is None:
        raise UsageError(f"{subject.name} has no attention, so no num_key_value_heads", "--for ctx or --for batch")
    return int(attention.heads)


def _divisors(whole: int) -> list[int]:
    """Every number that divides `whole`, in rising order."""
    small = [n for n in range(1, isqrt(whole) + 1) if whole % n == 0]
    return sorted({*small, *(whole // n for n in small)})


def _where(unknown: str, request: Request, subject: Subject) -> str:
    """What is known: the context, unless it is asked for, and the batch, unless that is."""
    if unknown == "ctx":
        new = 1 if request.decode else request.tokens
        step = "" if new is None else f", {new_tokens(new)}"
        return f"{step}, batch {request.batch:,}"
    words = common.workload_words([subject], request)
    return f", {words.rpartition(', batch')[0] if unknown == 'batch' else words}"


def _columns(unknown: str, equation: Equation) -> tuple[Column, ...]:
    return (
        Column("value", unknown, "count"),
        Column("left", equation.left.text, "number"),
        Column("stands", "", "text"),
        Column("right", equation.right.text, "number"),
    )


def _row(equation: Equation, value: int, point: Point) -> Row:
    left, right = equation.left.at(point), equation.right.at(point)
    return {
        "value": value,
        "left": left,
        "stands": "=" if left == right else "<" if left < right else ">",
        "right": right,
    }


def _answer(unknown: str, equation: Equation, found: Solution) -> str:
    if found.beyond is None:
        return f"The last {unknown} is {found.answer:,}, the largest there is: both sides are equal there."
    over = "above" if found.rises else "below"
    return (
        f"The last {unknown} is {found.answer:,}: from {found.beyond:,} on {equation.left.text} is {over}"
        f" {equation.right.text}."
    )


def _letters(form: str | None, subject: Subject) -> list[str]:
    """What the letters of a closed form stand for, and their sizes."""
    shown = set(re.findall("[A-Z][a-z]*", form or ""))
    if not shown:
        return []
    symbolic = opened(subject.architecture, fixed=subject.config.fixed)
    return ["; ".join(f"{letter} {said}" for letter, said in symbolic.legend.items() if letter in shown)][: len(shown)]


def _closed(unknown: str, found: Solution, form: str | None, *, rounded: bool) -> list[str]:
    if found.root is None:
        return [f"{unknown} must divide the query heads: every such number was tried."]
    value = decimal(found.root)
    before = ", before rounding to whole bytes" if rounded else ""
    return [f"Both sides are equal at {unknown} = {value if form is None else f'{form} = {value}'}{before}."]


def _facts(unknown: str, equation: Equation, value: int, point: Point) -> dict[str, Any]:
    return {unknown: value, "left": _number(equation.left, point), "right": _number(equation.right, point)}


def _number(side: Side, point: Point) -> Any:
    return Fraction(side.at(point))
