"""An equation solved: the largest context, batch or number of key heads before one side overtakes the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import gcd
from typing import Any

from tfacct.accounts.metrics import Metric, Point
from tfacct.algebra.closed_form import closed_form
from tfacct.algebra.equations import Equation, Side, read
from tfacct.algebra.searching import Found, divisors, searched, turn, whole
from tfacct.algebra.solving import UNKNOWNS, Solution, among, decimal, placed, solved
from tfacct.algebra.symbols import in_symbols
from tfacct.base.errors import ConfigError, NotFoundError, UsageError, listed, nearest
from tfacct.base.spelling import option
from tfacct.ledger.einsum import AXIS, Size
from tfacct.ledger.workload import Request, new_tokens
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row
from tfacct.reports import compose, conventions, counting
from tfacct.reports import latent_attention as latent
from tfacct.reports.counting import Counting
from tfacct.reports.solve_ranks import RANKS, answered, beside, smallest, started

HELD = ("total_bytes", "kv_cache_bytes", "peak_bytes", "saved_bytes")
"""Metrics of what a device holds, of those that grow with the context."""


def solve(subject: LoadedModel, request: Request, *, unknown: str, until: str, terms: Counting | None = None) -> Report:
    """The last whole `unknown` until `until`, such as `kv_cache_bytes=weights_bytes`.

    The unknown is ctx, batch, num_key_value_heads, or any field of the config that holds a whole number. Exact: the
    answer is held against whole numbers on both sides of the boundary. Raises UsageError where there is no solution,
    or more than one. Needs sympy for ctx and batch.
    """
    terms = terms or Counting()
    if terms.mesh is not None and unknown not in RANKS:
        said = f"{option('tp')} and {option('fsdp')} go with {option('unknown', 'tp')} or {option('unknown', 'fsdp')}"
        raise UsageError(said, f"{option('fit')} of train finds the largest context of a mesh")
    request = _checked(subject, request, unknown)
    chunk = request.decode or request.tokens is not None
    work = counting.workload(subject, request)
    equation = read(until, terms.point(subject, work))
    limit = subject.position_limit if unknown == "ctx" and _budgets(equation) else None
    if unknown != "ctx" and _budgets(equation):
        counting.runnable(subject, request)
    metrics = [side.metric for side in (equation.left, equation.right) if side.metric is not None]
    terms.check_recipe(metrics, "a metric such as peak_bytes")
    plain = started(unknown, terms)  # before the number of ranks is known
    point = plain.point(subject, work, metrics)
    settings, form = [subject], None
    at: Callable[[Size], Point]

    def read_with(value: Size) -> LoadedModel:
        return subject.with_fields({**subject.changed, unknown: value})

    def with_field(value: Size) -> Point:
        other = read_with(value)
        try:
            return terms.point(other, counting.workload(other, request), metrics)
        except UsageError as error:
            if not conventions.stepped(metrics):
                raise
            # Its training step is not counted, so it cannot be the answer.
            raise ConfigError(error.message, error.hint) from None

    if unknown in RANKS:
        least = smallest(subject, unknown, equation, lambda own: own.point(subject, work, metrics), terms)
        found, at, how = least.found, least.at, least.how
    elif unknown not in UNKNOWNS or (unknown == "num_key_value_heads" and conventions.stepped(metrics)):
        at = with_field
        sought = searched(unknown, equation, at, _given(subject, unknown))
        found, how = sought.solution, _sought(unknown, sought)
        settings = [read_with(value) for value in (found.answer, found.beyond) if value is not None]
    else:
        at = placed(unknown, subject.architecture, point, chunk=chunk)
        windowed = any(stack.block.window is not None for stack in subject.architecture.stacks)
        # A step keeps masks from where a context reaches across a window.
        bends = any(metric.of_step for metric in metrics) and (
            windowed or terms.recipe.for_model(subject).rounds_tokens
        )
        # New tokens are padded to whole chunks where a recurrence runs in chunks, and compressed keys are whole.
        bends |= unknown == "ctx" and subject.ledger.leaps
        together = subject.ledger.together if unknown == "ctx" else 1
        if together > 1:
            if subject.ledger.beside:
                raise UsageError(f"{subject.name}: ctx is not solved for where a class token stands beside patches")
            found = whole(unknown, equation, at, together)
            how = [f"ctx must be a multiple of {together:,}: so many positions become one row."]
        elif unknown == "num_key_value_heads":
            found = among(unknown, equation, at, divisors(gcd(*subject.architecture.query_heads)))
            how = [f"{unknown} must divide the query heads: every such number was tried."]
        elif bends or any(metric.whole for metric in metrics):
            found = whole(unknown, equation, at)
            how = [*_again(found), *_peak_phase(unknown, metrics, at, found.answer)]
        else:
            found = solved(unknown, equation, at, work.tokens if unknown == "ctx" and chunk else 1)
            if not found.leaps:
                form = _form(unknown, equation, subject, [at(found.answer), at(found.beyond)], chunk)
            how = _closed(unknown, found, form, rounded=point.cache.rounds)
    by_bytes = found.answer
    ends = limit is not None and found.rises and found.answer > limit
    if ends and limit is not None:
        found, form, how = Solution(limit, None, rises=True), None, [f"By bytes alone ctx could be {by_bytes:,}."]
    points = {value: at(value) for value in (found.answer, found.beyond) if value is not None}

    def notes(_: slice) -> list[str]:
        return [
            *how,
            *_letters(form, subject.settled(points[found.answer].work, masked=plain.masked)),
            *conventions.of_models(settings, metrics, plain),
            *latent.notes([(settings[0], there.work) for there in points.values()], metrics, masked=plain.masked),
            *conventions.of_windows(settings, metrics, masked=plain.masked),
        ]

    same = points[found.answer].work == work
    return compose.report(
        "solve",
        [replace(subject, defaulted=compose.shared_defaults([subject, *settings]))],
        (_columns(unknown, equation), (tuple(_row(equation, value, there) for value, there in points.items()),), ()),
        [
            {
                **plain.facts(subject, points[found.answer].work, points[found.answer].weights.name),
                **plain.recipe_facts(metrics),
                "for": unknown,
                "until": str(equation),
                "solution": found.answer,
                "beyond": found.beyond,
                "again": found.again,
                "past_positions": settings[0].past_positions(points[found.answer].work),
                "root": None if found.root is None else float(found.root),
                "closed_form": form,
                "lines": [_facts(unknown, equation, value, there) for value, there in points.items()],
            }
        ],
        title=f"{compose.name_of(subject)}: {unknown} until {equation}{beside(unknown, terms.mesh)}"
        f"{_where(unknown, request, subject, same)}{conventions.assumed([subject], metrics, plain)}",
        convention=conventions.convention(metrics),
        answer=(
            answered(unknown, equation, found, terms.mesh)
            if unknown in RANKS
            else _answer(unknown, equation, found, subject.past_words(found.answer) if unknown == "ctx" else "", ends)
        ),
        notes=notes,
        counted=conventions.counted([subject], metrics, plain, request),
        details=lambda _: conventions.counted_at_length([subject], metrics, plain, request),
        requests=[Request(ctx=found.answer) if unknown == "ctx" else request],
        headline="solution",
    )


def _peak_phase(unknown: str, metrics: Sequence[Metric], at: Callable[[Size], Point], answer: int) -> list[str]:
    """The phase of the peak at the answer, and where another phase has it."""
    from tfacct.accounts.step_metrics import PEAK, peak_phase

    if all(metric.name != PEAK for metric in metrics):
        return []
    found = turn(lambda value: peak_phase(at(value)), answer)
    before = "" if found is None else f"; it takes over from {found[1]!r} at {unknown} = {found[0]:,}"
    return [f"The peak at {unknown} = {answer:,} is in {peak_phase(at(answer))!r}{before}."]


def _again(found: Solution) -> list[str]:
    """Why the sides change places more than once, where they do."""
    if found.again is None:
        return []
    return ["Counts jump each time a compressed key is complete, so the two sides cross more than once."]


def _checked(subject: LoadedModel, request: Request, unknown: str) -> Request:
    """The request without the unknown. Raises UsageError where it is given, or the model has none."""
    if unknown == "ctx" and request.ctx is not None:
        raise UsageError(f"{option('unknown', 'ctx')} finds the context: leave {option('ctx')} out")
    if unknown == "ctx" and not counting.takes_context(subject, subject.context + 1):
        raise counting.other_context(subject)
    if unknown == "num_key_value_heads" and not subject.architecture.attentions:
        others = f"{option('unknown', 'ctx')} or {option('unknown', 'batch')}"
        raise UsageError(f"{subject.name} has no attention, so no num_key_value_heads", others)
    if unknown in RANKS and unknown in subject.raw:
        raise UsageError(f"{unknown} is a field of this config and a number of ranks: it cannot be solved for")
    if unknown == "batch" and request.batch != 1:
        raise UsageError(f"{option('unknown', 'batch')} finds the batch: leave {option('batch')} out")
    if unknown == "ctx" and (request.decode or request.tokens is not None):
        # Any context that holds the new tokens will do to begin with.
        return replace(request, ctx=max(subject.context, request.tokens or 1))
    return request


def _given(subject: LoadedModel, unknown: str) -> int:
    """The whole number that a field of the config holds. Raises NotFoundError where there is no such field."""
    fields = {**subject.config.model_dump(), **subject.defaulted, **subject.raw}
    if unknown not in fields:
        whole = [name for name, value in fields.items() if isinstance(value, int) and not isinstance(value, bool)]
        known = [name for name in (*UNKNOWNS, *RANKS, *whole) if name != unknown]
        close = nearest(unknown, known) or f"{option('unknown')} is one of {', '.join((*UNKNOWNS, *RANKS))}, or a field"
        raise NotFoundError(f"nothing to solve for named {unknown!r}", close)
    value = fields[unknown]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{unknown} is {compose.spoken(value)} here, not a whole number of at least 1")
    return value


def _sought(unknown: str, sought: Found) -> list[str]:
    """Which numbers a field could be."""
    if sought.step is None:
        numbers = listed([f"{value:,}" for value in sought.among], 12)
        return [f"{unknown} can be {numbers} here: each was tried."]
    return [f"{unknown} must be a multiple of {sought.step:,} here."] if sought.step > 1 else []


def _where(unknown: str, request: Request, subject: LoadedModel, same: bool) -> str:
    """What is known: the context, unless it is asked for or not the `same`, and the batch, unless that is asked for."""
    if unknown == "ctx":
        new = 1 if request.decode else request.tokens
        step = "" if new is None else f", {new_tokens(new)}"
        return f"{step}, batch {request.batch:,}"
    if unknown not in UNKNOWNS and not same:
        return f", each at its own longest context, batch {request.batch:,}"
    words = compose.workload_words([subject], request)
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


def _budgets(equation: Equation) -> bool:
    """True if one side is bytes that a device has to hold, and the other a number of them."""
    sides = equation.left.metric, equation.right.metric
    return None in sides and any(metric is not None and metric.name in HELD for metric in sides)


def _answer(unknown: str, equation: Equation, found: Solution, past: str, ends: bool) -> str:
    """What is true up to the last value, in one sentence. `past`: that this context is past a position embedding;
    `ends`: that is where one ends."""
    left, right = equation.left.text, equation.right.text
    answer = f"{found.answer:,}{past and f' tokens{past}'}"
    if ends:
        return (
            f"The largest {unknown} is {answer}, the end of its position embedding: {left} stays within {right} there."
        )
    if found.beyond is None:
        return f"The largest {unknown} there is, {answer}, makes {left} equal to {right}."
    stays = "stays within" if found.rises else "stays at or above"
    if found.again is not None:
        there = f"beyond that it does so only at some contexts, the last of them {found.again:,}"
        return f"Up to {unknown} = {answer}, {left} {stays} {right}; {there}."
    return f"The largest {unknown} is {answer}: {left} {stays} {right}."


def _form(unknown: str, equation: Equation, subject: LoadedModel, around: Sequence[Point], chunk: bool) -> str | None:
    """The solution in letters; None where the model runs in another way on its other side."""
    answer, beyond = (there.ledger.settled(there.at, masked=there.masked) for there in around)
    if answer is not beyond:
        return None
    point = replace(around[0], ledger=answer)
    shape = subject.settled(point.work, masked=point.masked).architecture
    return closed_form(unknown, equation, shape, point, chunk=chunk, fixed=subject.config.constant_axes)


def _letters(form: str | None, subject: LoadedModel) -> list[str]:
    """What the letters of a closed form stand for, and their sizes."""
    shown = set(AXIS.findall(form or ""))
    if not shown:
        return []
    symbolic = in_symbols(subject.architecture, fixed=subject.config.constant_axes)
    return ["; ".join(f"{letter} {said}" for letter, said in symbolic.legend.items() if letter in shown)][: len(shown)]


def _closed(unknown: str, found: Solution, form: str | None, *, rounded: bool) -> list[str]:
    if found.leaps:
        return ["They are equal nowhere: at that point latent attention starts to run in another form."]
    value = decimal(found.root)
    before = ", before rounding to whole bytes" if rounded else ""
    return [f"Both sides are equal at {unknown} = {value if form is None else f'{form} = {value}'}{before}."]


def _facts(unknown: str, equation: Equation, value: int, point: Point) -> dict[str, Any]:
    return {unknown: value, "left": _number(equation.left, point), "right": _number(equation.right, point)}


def _number(side: Side, point: Point) -> Any:
    return Fraction(side.at(point))
