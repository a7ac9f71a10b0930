"""`solve`: the largest context, batch or config field before one metric passes another, or the smallest parallel
layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, TypeAlias

from tfacct.accounts.metrics import Metric, Point
from tfacct.algebra.closed_form import closed_form
from tfacct.algebra.equations import Equation, Side, read
from tfacct.algebra.searching import searched, searched_multiples
from tfacct.algebra.solving import UNKNOWNS, NoSolutionError, Solution, among, decimal, placed, solved
from tfacct.base import units
from tfacct.base.errors import ConfigError, NotFoundError, TfacctError, UsageError, listed, nearest
from tfacct.base.spelling import option
from tfacct.families.known_fields import same_size
from tfacct.ledger.einsum import Size, divisors
from tfacct.ledger.workload import LARGEST, Request, Workload
from tfacct.loading import selection
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.output.keys import Keys, values_of
from tfacct.output.report import Column, Table
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.search import label, rank_counts, with_ranks
from tfacct.reports import build, model_notes
from tfacct.reports.metrics import CountedMetrics, Counting, MetricsReport
from tfacct.reports.ranks import fitting_words, in_devices, own_batch, peak_notes

ON_DEVICE = ("total_bytes", "kv_cache_bytes", "peak_bytes", "saved_bytes")
"""Metrics of a device's memory that grow with the context."""
RANKS = ("tp", "fsdp", "pp", "ep")
"""Unknowns that are numbers of ranks."""
RANK_NOTES = {
    "tp": "tp must divide the query heads.",
    "ep": "ep must divide the experts.",
    "pp": "Numbers are for the fullest stage.",
    "fsdp": "Numbers are for one rank; each rank has its own batch.",
}
SolveLine: TypeAlias = dict[str, Any]
"""One candidate: the unknown by its name, and both sides, `left` and `right`."""


class _Solved(NamedTuple):
    """A solution, the point at a value of the unknown, and notes. `form`: the solution in symbols. `settings`: the
    models on both sides of it, if the unknown is a field. `limited`: it is the length of a learned position embedding.
    """

    found: Solution
    at: Callable[[Size], Point]
    notes: list[str]
    form: str | None = None
    settings: Sequence[LoadedModel] = ()
    limited: bool = False


class _Question(NamedTuple):
    """An equation in one unknown, for one model and step. `terms`: without the unknown ranks; `point`: at the step;
    `ranks`: the given layout."""

    unknown: str
    equation: Equation
    model: LoadedModel
    request: Request
    work: Workload
    terms: Counting
    point: Point
    ranks: Mesh
    limit: MemoryLimit | None = None
    """The device whose usable memory is the right side."""

    @property
    def device(self) -> str:
        """Its usable memory in words."""
        return "" if self.limit is None else self.limit.size

    @property
    def where(self) -> str:
        """The device, or the devices that share the model, in words."""
        if self.limit is None or self.terms.mesh is None or self.unknown in RANKS:
            return f"in {self.device}"
        return fitting_words(self.limit, self.terms.mesh)

    @property
    def counted(self) -> CountedMetrics:
        """The metrics and how they are counted."""
        return CountedMetrics(self.equation.metrics, self.terms)


of_solved: Keys[[_Question, _Solved]] = Keys()


class SolveReport(MetricsReport):
    """Largest value of an unknown that satisfies a condition."""

    _line = SolveLine
    # `for` is a word of Python.
    _reserved: ClassVar[dict[str, Any]] = {"for": str}

    until: str = of_solved(lambda question, _: str(question.equation))
    solution: int = of_solved(lambda _, solved: solved.found.answer)
    beyond: int | None = of_solved(lambda _, solved: solved.found.beyond)
    again: int | None = of_solved(lambda _, solved: solved.found.again)
    past_positions: str | None
    root: float | None = of_solved(lambda _, solved: None if solved.found.root is None else float(solved.found.root))
    closed_form: str | None = of_solved(lambda _, solved: solved.form)


@in_devices
def solve(
    model: LoadedModel,
    request: Request,
    *,
    unknown: str,
    until: str,
    terms: Counting | None = None,
    limit: MemoryLimit | None = None,
) -> SolveReport:
    """The last whole value of `unknown` for which `until` holds, such as `kv_cache_bytes=weights_bytes`.

    `unknown`: ctx, batch, num_key_value_heads, a field of the config with a whole number, or the ranks of tp, fsdp, pp
    or ep. The answer is checked in whole numbers on both sides of the boundary. `limit`: the device whose memory is the
    right side. Needs sympy for ctx and batch. Raises TfacctError, also if there is no solution, or more than one.
    """
    terms = terms or Counting()
    ranks = terms.mesh or Mesh()
    if ranks != Mesh() and unknown not in RANKS:
        shards_tokens = ranks.sp or ranks.pp * ranks.sequence_shards > 1
        if shards_tokens or unknown == "num_key_value_heads":
            raise UsageError(
                f"{label(ranks)} is not supported with {option('unknown', unknown)}",
                f"`tfacct memory {model.name} {option('on', '2xh100')}`, or `tfacct train` for a training step, prints"
                " the largest context and batch",
            )
    request = _without_unknown(model, request, unknown)
    work = selection.workload(model, request)
    equation = read(until, terms.point(model, work))
    if limit is not None:
        equation = replace(equation, right=replace(equation.right, text=limit.size))
    sides = {side.metric and side.metric.name for side in (equation.left, equation.right)}
    budget = None in sides and not sides.isdisjoint(ON_DEVICE)  # memory against a number of bytes
    if unknown != "ctx" and budget:
        selection.runnable(model, request)
    metrics = equation.metrics
    terms.check_recipe(metrics)
    if unknown == "tp" and ranks.tp == 1:
        terms = _with_ranks(terms, ranks, unknown, 1)  # sp and a plan need several
    point = terms.point(model, work, metrics)
    question = _Question(unknown, equation, model, request, work, terms, point, ranks, limit)
    if unknown in RANKS:
        answer = _fewest_ranks(question)
    elif unknown not in UNKNOWNS or (unknown == "num_key_value_heads" and question.counted.training):
        answer = _by_field(question)
    else:
        answer = _by_algebra(question, model.position_limit if budget else None)
    positions, found = model.position_limit, answer.found
    if unknown == "ctx" and budget and positions is not None and found.rises and found.answer > positions:
        answer = _Solved(Solution(positions, None, rises=True), answer.at, [], limited=True)
    return _report(question, answer)


def _with_room(question: _Question) -> int | None:
    """The largest context or batch of a training step with what the CUDA allocator reserves; None for others."""
    limit, equation = question.limit, question.equation
    if limit is None or not question.counted.training or question.unknown not in ("ctx", "batch"):
        return None
    smaller = replace(equation, right=replace(equation.right, times=Fraction(limit.roomy)))
    try:
        answer = _by_algebra(question._replace(equation=smaller)).found.answer
    except NoSolutionError:
        return 0
    positions = question.model.position_limit
    return min(answer, positions or answer) if question.unknown == "ctx" else answer


def _without_unknown(model: LoadedModel, request: Request, unknown: str) -> Request:
    """The request without the unknown. Raises UsageError if it is given, or if the model has none."""
    if unknown == "ctx" and request.ctx is not None:
        raise UsageError(f"{option('unknown', 'ctx')} solves for the context: leave {option('ctx')} out")
    if unknown == "ctx" and not selection.takes_context(model, model.context + 1):
        raise selection.other_context(model)
    if unknown == "num_key_value_heads" and not model.architecture.attentions:
        others = f"{option('unknown', 'ctx')} or {option('unknown', 'batch')}"
        raise UsageError(f"{model.name} has no attention, so no num_key_value_heads", others)
    if unknown in RANKS and unknown in model.raw:
        raise UsageError(f"{unknown} names both a config field and a number of ranks, so it cannot be solved for")
    if unknown == "batch" and request.batch != 1:
        raise UsageError(f"{option('unknown', 'batch')} solves for the batch: leave {option('batch')} out")
    if unknown == "ctx" and request.new is not None:
        # Any context with room for the new tokens.
        return replace(request, ctx=max(model.context, request.new))
    return request


def _by_algebra(question: _Question, positions: int | None = None) -> _Solved:
    """The context, the batch or the key/value heads, with the unknown as a symbol in the ledger. `positions`: where a
    position embedding ends the context, also if memory does not limit it."""
    unknown, equation, model = question.unknown, question.equation, question.model
    metrics = equation.metrics
    at = placed(unknown, model.architecture, question.point, chunk=question.request.new is not None)
    if unknown == "ctx" and positions is not None and not model.has_cache and equation.difference(at(LARGEST)) < 0:
        return _Solved(Solution(LARGEST + 1, None, rises=True), at, [])
    windowed = any(stack.block.window is not None for stack in model.architecture.stacks)
    # A training step saves masks from where a context reaches across a window.
    bends = any(metric.of_step for metric in metrics) and (
        windowed or question.terms.recipe.for_model(model).rounds_tokens
    )
    # New tokens are padded to whole chunks where a recurrence runs in chunks, and compressed keys are whole.
    bends |= (unknown == "ctx" and model.ledger.leaps) or question.terms.mesh is not None
    together = model.ledger.together if unknown == "ctx" else 1
    first = question.work.tokens if unknown == "ctx" and question.request.new is not None else 1
    least = max(together, first)
    if question.limit is not None and equation.difference(at(least)) > 0:
        size = units.binary(int(equation.left.at(at(least))))
        raise NoSolutionError(
            f"{model.name}: not even {unknown} = {least:,} fits {question.where}: {equation.left.text} is {size}"
        )
    if together > 1:
        if model.ledger.learned_tokens:
            raise UsageError(f"{model.name}: solving for ctx is not supported for patches with a class token")
        note = f"ctx must be a multiple of {together:,}, because {together:,} positions merge into one row."
        return _Solved(searched_multiples(unknown, equation, at, together), at, [note])
    if unknown == "num_key_value_heads":
        found = among(unknown, equation, at, divisors(model.architecture.query_heads))
        return _Solved(found, at, [f"{unknown} must divide the query heads; all divisors were tried."])
    if bends or any(metric.whole for metric in metrics):
        found = searched_multiples(unknown, equation, at)
        jumps = "Counts jump whenever a compressed key is complete, so the sides cross more than once."
        return _Solved(found, at, [] if found.again is None else [jumps])
    found = solved(unknown, equation, at, first)
    form = None if found.leaps else _closed_form(question, [at(found.answer), at(found.beyond)])
    never = ["They are never equal: latent attention changes its mode at that point."] if found.leaps else []
    return _Solved(found, at, never, form)


def _closed_form(question: _Question, around: Sequence[Point]) -> str | None:
    """The solution in symbols; None if latent attention changes its mode there."""
    answer, beyond = (point.ledger.settled(point.at, masked=point.masked) for point in around)
    if answer is not beyond:
        return None
    point = replace(around[0], ledger=answer)
    shape = question.model.settled(point.work, masked=point.masked).architecture
    fixed = question.model.config.constant_axes
    return closed_form(
        question.unknown, question.equation, shape, point, chunk=question.request.new is not None, fixed=fixed
    )


def _root(question: _Question, answer: _Solved) -> list[str]:
    """Where both sides are equal, in symbols if there is a closed form, and the meaning of its axes."""
    found, form, point = answer.found, answer.form, answer.at(answer.found.answer)
    if found.root is None or found.leaps:
        return []
    value = f"{f'{form} = ' if form else ''}{decimal(found.root)}"
    before = ", before rounding to whole bytes" if point.cache.rounds else ""
    axes = model_notes.axes_words(form or "", question.model.settled(point.work, masked=point.masked))
    return [f"Both sides are equal at {question.unknown} = {value}{before}.", *([axes] if axes else [])]


def _by_field(question: _Question) -> _Solved:
    """A field of the config, by loading the model with values of it."""
    unknown, model, request, metrics = question.unknown, question.model, question.request, question.equation.metrics

    def read_with(value: Size) -> LoadedModel:
        return model.with_fields({**model.changed, unknown: value})

    def at(value: Size) -> Point:
        other = read_with(value)
        try:
            return question.terms.point(other, selection.workload(other, request), metrics)
        except UsageError as error:
            if not question.counted.training:
                raise
            # Its training step is not counted, so it cannot be the answer.
            raise ConfigError(error.message, error.hint) from None

    found = searched(unknown, question.equation, at, _given(model, unknown))
    if found.step is None:
        notes = [f"{unknown} can be {listed([f'{value:,}' for value in found.among], 12)} here; all were tried."]
    else:
        notes = [f"{unknown} must be a multiple of {found.step:,} here."] if found.step > 1 else []
    around = (found.solution.answer, found.solution.beyond)
    settings = [read_with(value) for value in around if value is not None]
    return _Solved(found.solution, at, notes, settings=settings)


def _given(model: LoadedModel, unknown: str) -> int:
    """The value of a field, a whole number. Raises NotFoundError if there is no such field, UsageError for another
    value."""
    fields = {**model.config.model_dump(), **model.defaulted, **model.raw}
    if unknown not in fields:
        numbers = [name for name, value in fields.items() if isinstance(value, int) and not isinstance(value, bool)]
        known = [name for name in (*UNKNOWNS, *RANKS) if name != unknown]
        close = nearest(unknown, [*known, *numbers]) or f"{option('unknown')} is one of {', '.join(known)}, or a field"
        same = same_size(unknown, fields)
        raise NotFoundError(f"unknown variable {unknown!r}", f"did you mean {same}?" if same else close)
    value = fields[unknown]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"solve changes only whole numbers of at least 1; {unknown} is {build.format_value(value)}")
    return value


def _fewest_ranks(question: _Question) -> _Solved:
    """The fewest ranks with which the left side is at most the right one. Raises UsageError if no number is enough."""
    unknown, equation, model, mesh = question.unknown, question.equation, question.model, question.ranks
    if getattr(mesh, unknown) != 1:
        raise UsageError(f"{option('unknown', unknown)} solves for the ranks: leave {option(unknown)} out")
    known: dict[int, Point] = {}

    def at(count: Any) -> Point:
        if count not in known:
            sharded = _with_ranks(question.terms, mesh, unknown, count)
            known[count] = sharded.point(model, question.work, equation.metrics)
        return known[count]

    def fits(count: int) -> bool:
        return bool(equation.difference(at(count)) <= 0)

    tried: list[int] = []
    why: TfacctError | None = None
    for count in rank_counts(model, mesh, unknown):
        try:
            enough = fits(count)
        except TfacctError as error:
            why = error
            continue
        if enough:
            answer, before = _between(tried, count, fits)
            axes = [axis for axis in ("tp", "pp", "cp") if axis == unknown or getattr(mesh, axis) > 1]
            notes = [RANK_NOTES[unknown], *peak_notes(equation.left.text, *axes)]
            return _Solved(Solution(answer, before[0] if before else None, False), at, notes)
        tried.append(count)
    if tried in ([], [1]) and why is not None:
        raise why
    ends = f"{equation.left.text} is still above {equation.right.text} with {option(unknown, tried[-1])}"
    raise UsageError(f"{model.name}: no number of ranks is enough: {ends}", "shard it along another axis too")


def _with_ranks(terms: Counting, ranks: Mesh, unknown: str, count: int) -> Counting:
    """The terms with this many ranks of the unknown."""
    mesh = with_ranks(ranks, unknown, count)
    return replace(terms, mesh=None if mesh == Mesh() else mesh)


def _between(tried: list[int], count: int, fits: Callable[[int], bool]) -> tuple[int, list[int]]:
    """The fewest sufficient ranks, and the next smaller number: between those tried, unless a number is not
    supported."""
    least, most = (tried[-1] if tried else 0), count
    try:
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (least, middle) if fits(middle) else (middle, most)
    except TfacctError:
        return count, tried[-1:]
    return most, [least] if least else []


def _report(question: _Question, answer: _Solved) -> SolveReport:
    unknown, equation, model, request = question.unknown, question.equation, question.model, question.request
    counted, found, device = question.counted, answer.found, question.device
    points = {value: answer.at(value) for value in (found.answer, found.beyond) if value is not None}
    settings = answer.settings or [model]
    solution = points[found.answer]

    def notes(_: slice) -> list[str]:
        return [
            *answer.notes,
            *_tight_notes(question, solution),
            *counted.notes(settings),
            *counted.window_notes(settings),
            *([] if question.limit is None else question.limit.notes),
        ]

    if unknown in RANKS:
        relation, words = f"smallest {unknown} within {equation}", _ranks_answer(question, found)
    else:
        relation, words = f"{unknown} where {equation}", _answer(question, answer, solution)
        if device:
            relation = f"the largest {unknown} with {equation.left.text} within {device}"
        if device and found.rises and found.again is None and (answer.limited or found.beyond is not None):
            words, roomy = _fits(question, answer), _with_room(question)
            if roomy is not None and roomy < found.answer:
                words = f"{words.removesuffix('.')} ({roomy:,} {model_notes.ROOM})."
    where = _where(unknown, request, model, equation.metrics, same=solution.work == question.work)
    lines: list[SolveLine] = [
        {unknown: value, "left": Fraction(equation.left.at(point)), "right": Fraction(equation.right.at(point))}
        for value, point in points.items()
    ]
    facts = {
        **question.terms.facts(model, solution.work, solution.weights.name),
        **question.terms.recipe_facts(equation.metrics),
        "for": unknown,
        **values_of(SolveReport, question, answer, past_positions=settings[0].past_positions(solution.work)),
        "lines": lines,
    }
    return build.report(
        SolveReport,
        [replace(model, defaulted=build.shared_defaults([model, *settings]))],
        _table(unknown, lines, equation.left.text, "usable bytes" if device else equation.right.text),
        [facts],
        title=f"{build.label(model)}: {relation}{_other_ranks(question)}{where}{counted.assumed([model])}",
        answer=words,
        notes=notes,
        details=lambda _: _root(question, answer),
        convention=counted.convention([model], request.logits),
        requests=[Request(ctx=found.answer) if unknown == "ctx" else request],
        settings=[settings],
        headline="solution",
    )


def _tight_notes(question: _Question, solution: Point) -> list[str]:
    """Whether a training step fits without room for what the CUDA allocator reserves."""
    limit = question.limit
    if limit is None or not question.counted.training:
        return []
    tight = limit.is_tight(int(question.equation.left.at(solution)))
    return [f"It may run out of memory: {model_notes.RESERVED}"] if tight else []


def _table(unknown: str, lines: Sequence[SolveLine], left: str, right: str) -> Table:
    """Both sides at each value of the unknown, under these headers."""
    columns = (
        Column("value", unknown, "count"),
        Column("left", left, "number"),
        Column("sign", ""),
        Column("right", right, "number"),
    )

    def sign(line: SolveLine) -> str:
        if line["left"] == line["right"]:
            return "="
        return "<" if line["left"] < line["right"] else ">"

    return columns, (tuple({**line, "value": line[unknown], "sign": sign(line)} for line in lines),), ()


def _answer(question: _Question, answer: _Solved, solution: Point) -> str:
    """Up to which value one side stays within the other."""
    unknown, found, (left, right) = question.unknown, answer.found, (question.equation.left, question.equation.right)
    if found.beyond is None and not answer.limited:
        return f"The largest possible {unknown}, {found.answer:,}, makes {left.text} equal to {right.text}."
    if unknown not in ("ctx", "batch") and found.rises and right.metric is None:
        return f"{unknown} = {found.answer:,} gives {_value(left, solution)}, the most within {right.text}."
    stays, then = ("within", "larger") if found.rises else ("at or above", "smaller")
    past = question.model.past_words(found.answer) if unknown == "ctx" else ""
    length = ", the length of its position embedding" if answer.limited else past
    until = f"Up to {unknown} = {found.answer:,}{length}, {left.text} stays {stays} {right.text}"
    if answer.limited:
        return f"{until}."
    if found.again is not None:
        return f"{until}; beyond that, only at some contexts, up to {found.again:,}."
    return f"{until}; from {found.beyond:,} on, it is {then}."


def _value(side: Side, point: Point) -> str:
    """`1,235,814,400 parameters`, or another metric by name."""
    value = Column("", "", "number").text(Fraction(side.at(point)))
    return f"{value} parameters" if side.text == "total_params" else f"{side.text} = {value}"


def _fits(question: _Question, answer: _Solved) -> str:
    """The largest value with which the model fits in the memory of the devices."""
    unknown, where, most = question.unknown, question.where, answer.found.answer
    if unknown == "ctx":
        length = ", the length of its position embedding," if answer.limited else ""
        return f"A context of up to {most:,} tokens{length} fits {where}."
    if unknown == "batch":
        return f"A batch of up to {most:,}{own_batch(question.terms.mesh)} fits {where}."
    return f"The largest {unknown} is {most:,}: the model fits {where}."


def _where(unknown: str, request: Request, model: LoadedModel, metrics: Sequence[Metric], *, same: bool) -> str:
    """The workload without the unknown, if the metrics depend on it. `same`: the solution has the context of the
    question."""
    if all(metric.unit == "params" or metric.name == "weights_bytes" for metric in metrics):
        return ""
    if unknown == "ctx":
        step = "" if request.new is None else f", {units.number_of(request.new, 'new token')}"
        return f"{step}, batch {request.batch:,}"
    if unknown not in UNKNOWNS and not same:
        return f", each at its longest context, batch {request.batch:,}"
    words = build.workload_words([model], request)
    return f", {words.rpartition(', batch')[0] if unknown == 'batch' else words}"


def _ranks_answer(question: _Question, found: Solution) -> str:
    unknown, device = question.unknown, question.device
    stays = f"{question.equation.left.text} stays within {question.equation.right.text}"
    if found.answer == 1 and question.ranks.ranks == 1:
        return f"One rank is enough: {f'the model fits in {device}' if device else stays}."
    if device:
        return f"The smallest {unknown} is {found.answer:,}: each rank fits in {device}."
    return f"The smallest {unknown} is {found.answer:,}: {stays} on each rank."


def _other_ranks(question: _Question) -> str:
    """The given ranks, in a title."""
    return "" if question.ranks == Mesh() else f", {label(question.ranks)}"
