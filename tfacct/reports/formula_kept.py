"""What a training step keeps for its backward pass, in letters: tensor by tensor, a block, and all together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from tfacct.accounts.training import Step
from tfacct.algebra.factored import BLOCKS, Factored
from tfacct.algebra.symbols import SymbolicModel, block_letters, in_symbols, with_sizes
from tfacct.architecture import letters
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import UsageError
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS, Size
from tfacct.ledger.kept import Role, Section
from tfacct.ledger.storage import width
from tfacct.ledger.workload import CHUNKS, PATCHES, Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table
from tfacct.reports import compose, counting
from tfacct.reports import formula_kept_ranks as kept_ranks
from tfacct.reports.conventions import TRAINING
from tfacct.reports.counting import Counting
from tfacct.reports.formula import Line, legend_of, sizes_of, title_of
from tfacct.reports.formula_legend import legend_notes
from tfacct.reports.formula_ranks import Divided, letters_of
from tfacct.reports.passes import MANY, pass_of
from tfacct.reports.training import stepper
from tfacct.training.recipe import FP32, Recipe


class Tensor(NamedTuple):
    """A kept tensor in letters, in all blocks that have it, and where it stands."""

    place: int
    role: Role
    line: Line


def formula_kept(
    subject: LoadedModel,
    request: Request,
    terms: Counting,
    *,
    family: bool = False,
    axes: Mapping[str, str] | None = None,
    sp: bool = False,
) -> Report:
    """Bytes that the backward pass needs, as a polynomial in every size, on one rank of `axes`. Raises UsageError for a
    model whose training step is not counted. A batch of one is laid out in another way, so of a model the formula is
    that of its batch."""
    from sympy import expand

    axes = axes or {}
    kept_ranks.check(axes)
    recipe = terms.recipe.for_model(subject)
    work = counting.workload(subject, request)
    work = replace(work, context=1, tokens=1, batch=MANY) if family else work
    step = stepper(subject, recipe)(work)
    symbolic, written, whole = written_kept(subject, recipe, work)
    if not whole.is_polynomial(*whole.free_symbols):
        raise _unwritten(subject)
    values = {} if family else sizes_of(subject, work.axes()) | work.axes()
    if not family:
        _check(symbolic, whole, values, int(step.kept()), subject)
    own, how = None if family else step, list[str]()
    if axes:
        written = kept_ranks.on_rank(written, sp)
        own = kept_ranks.in_numbers(subject, recipe, work, axes, sp)
        own = None if family else own
        how = kept_ranks.notes(written, axes, sp)
        if not family:
            sums = kept_ranks.sums(written, written.run.sections, axes)
            numbers = {by: _at(symbolic, sum_, values) for by, sum_ in sums.items()}
            how += kept_ranks.compared(subject, recipe, work, axes, sp, numbers)
    tensors = list(_tensors(symbolic, written, own, axes))
    lines = [tensor.line for tensor in tensors]
    stacks = [letter for letter in symbolic.symbols if letter.startswith(BLOCKS)]

    def said(sections: Sequence[Section], *fronts: Sequence[str]) -> Factored | Divided:
        parts = kept_ranks.sums(written, sections, axes)
        found = tuple((symbolic.in_front(expand(part), *fronts), by) for by, part in parts.items())
        return Divided(found) if axes else found[0][0]

    total = said(written.run.sections, stacks, _of_step(symbolic))
    kinds = _kinds(subject.architecture, written.run.blocks)
    blocks = {kind: said([block._replace(count=1)], _of_step(symbolic)) for kind, block in kinds}
    legend = legend_of(symbolic, lines, total, values) | letters_of(axes)
    facts = {
        **({"model": subject.family} if family else {}),
        "biases_and_ties_of": subject.name,
        "workload": None if family else counting.workload_facts(work, dtype=recipe.dtype),
        "of": "saved",
        "latent_attention": None,
        "total_formula": total.code,
        "total_text": total.text,
        "total_latex": total.latex,
        **({} if own is None else {"saved_bytes": int(own.kept())}),
        "saved_by_block": [
            {"kind": kind, "bytes_formula": block.code, "text": block.text} for kind, block in blocks.items()
        ],
        "lines": [_cells(line) | {"role": role, "latex": line.count.latex} for _, role, line in tensors],
        "legend": legend,
    }
    where = "" if family else compose.of_workload([subject], request)
    who = subject.family if family else compose.name_of(subject)
    return compose.report(
        "formula",
        [subject],
        _table(tensors, facts),
        [facts],
        title=f"{who}: {title_of(f'bytes kept in a training step in {recipe.dtype}', where)}",
        convention=f"as transformers runs it with {recipe.runs_with}: {TRAINING}",
        counted=recipe.counted,
        notes=lambda _: (
            *(f"block{f' ({kind})' if len(blocks) > 1 else ''} = {block.text}" for kind, block in blocks.items()),
            f"total = {total.text}",
            *legend_notes(legend),
            *how,
            "Every token is new: S is T, and written T.",
            *_holds(subject, work),
        ),
        requests=[] if family else [request],
        defaults=[] if family else [subject],
        headline="" if family else "saved_bytes",
    )


class WrittenKept(NamedTuple):
    """What a step keeps in letters: the letters, the step, and the whole."""

    symbolic: SymbolicModel
    step: Step
    whole: Any


def written_kept(subject: LoadedModel, recipe: Recipe, work: Workload) -> WrittenKept:
    """What a step of any size keeps that is laid out as this one."""
    import sympy

    if subject.architecture.encoder is not None:
        raise UsageError(
            f"{subject.name}: what both sides keep is not written in letters",
            f"tfacct train {subject.name} counts it at any sizes",
        )
    symbolic = _letters(subject, work)
    step = _in_letters(subject, symbolic, recipe, work)
    return WrittenKept(symbolic, step, sympy.expand(step.kept()))


def _letters(subject: LoadedModel, work: Workload) -> SymbolicModel:
    """The model's letters. One head of keys for all queries stays a number: it is seen, not copied."""
    alone = any(getattr(part, "kv_heads", 0) == 1 for part in subject.architecture.attentions) and work.batch == 1
    return in_symbols(subject.architecture, fixed=subject.config.fixed | ({"K"} if alone else set()))


def _holds(subject: LoadedModel, work: Workload) -> Iterator[str]:
    """Which steps are laid out as this one."""
    many = "B = 1" if work.batch == 1 else "B of at least 2"
    yield f"Holds for {many}: a single sequence is laid out differently in memory."
    windows = {stack.block.window for stack in subject.architecture.stacks if stack.block.window is not None}
    if past := {window for window in windows if work.tokens >= window}:
        yield f"Holds for contexts of at least {max(past):,}, the window: shorter ones keep other tensors."
    elif windows:
        yield f"Holds for contexts shorter than {min(windows):,}, the window: longer ones keep other tensors."


def _in_letters(subject: LoadedModel, symbolic: SymbolicModel, recipe: Recipe, work: Workload) -> Step:
    """The step with a symbol for every size, laid out as at this workload. As many tokens are seen as are new."""
    shape, symbols = subject.architecture, symbolic.symbols
    stacks = block_letters(shape)
    fixed = frozenset(name for name in letters.explained(shape) if name not in symbols)
    open_ = with_sizes(shape, symbols.__getitem__, fixed.union(stacks))
    run = pass_of(subject, recipe, work, open_)
    counted = zip(_by_stack(shape, run.blocks), stacks, strict=True)
    run = run._replace(
        blocks=tuple(
            block._replace(count=symbols[letter] - (len(own) - 1) if block is most else 1)
            for own, letter in counted
            for most in [None if _first_alone(shape, own) else max(reversed(own), key=_blocks)]
            for block in own
        )
    )
    tokens = symbols["T"]
    at = Workload(context=tokens, tokens=tokens, batch=symbols["B"]).axes()
    at |= {letter: symbols[letter] for letter in (CHUNKS, PATCHES) if letter in symbols}
    wide = width(FP32) if recipe.autocast else None
    return Step(run, symbolic.ledger, at, width(recipe.dtype), 0, checkpoint=recipe.recompute == "full", wide=wide)


def _blocks(section: Section) -> int:
    return len(section.numbers)


def _by_stack(shape: Transformer, blocks: Sequence[Section]) -> list[list[Section]]:
    """The blocks of each stack, those that keep something else apart."""
    if len(blocks) == len(shape.stacks):
        return [[block] for block in blocks]
    return [[block for block in blocks if block.numbers[0] in numbers] for numbers in shape.numbers()]


def _first_alone(shape: Transformer, own: list[Section]) -> bool:
    """True for the one block of its kind whose streams are one vector still: more of them would keep something else."""
    return shape.stacks[0].block.hyper is not None and [block.numbers for block in own] == [shape.numbers()[0][:1]]


def _kinds(shape: Transformer, blocks: Sequence[Section]) -> Iterator[tuple[str, Section]]:
    """A block of each kind, and the first where its streams are one vector still."""
    for kind, own in zip(shape.kinds(), _by_stack(shape, blocks), strict=True):
        if len(own) > 1 and shape.stacks[0].block.hyper is not None:
            yield f"first {kind}".strip(), own[0]
        yield kind, max(reversed(own), key=_blocks)


def _tensors(symbolic: SymbolicModel, written: Step, step: Step | None, axes: Mapping[str, str]) -> Iterator[Tensor]:
    """Every kept tensor in letters and, at a workload, in bytes."""
    sides = zip(written.run.sections, written.run.sections if step is None else step.run.sections, strict=True)
    for number, (open_, section) in enumerate(sides):
        known = written if step is None else step
        for line, same in zip(written.lines_of(open_), known.lines_of(section), strict=True):
            bytes_ = open_.count * written.bytes(open_, [line])
            value = {} if step is None else {"bytes_value": int(section.count * step.bytes(section, [same]))}
            if bytes_ != 0:
                count, by = symbolic.formula([bytes_]).written, kept_ranks.divides(line, axes)
                own = Divided(((count, by),)) if by else count
                yield Tensor(number, line.role, Line(line.path, kept_ranks.spec_of(line), own, value, None))


def _of_step(symbolic: SymbolicModel) -> list[str]:
    """The letters of a step, which stand in front of brackets."""
    return [letter for letter in ("B", "T") if letter in symbolic.symbols]


def _check(symbolic: SymbolicModel, whole: Size, values: dict[str, Any], kept: int, subject: LoadedModel) -> None:
    """Refuse a formula that is another number than the account of the same step."""
    if _at(symbolic, whole, values) != kept:
        raise _unwritten(subject)


def _unwritten(subject: LoadedModel) -> UsageError:
    return UsageError(f"{subject.name}: what its step keeps is no polynomial in these letters: no formula is written")


def _at(symbolic: SymbolicModel, whole: Size, values: Mapping[str, Any]) -> Size:
    """A sum in letters at these sizes."""
    sizes = {letter: values[letter] for letter in AXIS.findall(str(whole)) if letter in values}
    return whole.subs({symbolic.symbols[letter]: size for letter, size in sizes.items()})


def _cells(line: Line) -> dict[str, Any]:
    return {"path": line.path, "spec": line.spec, "bytes_formula": line.count.code, **line.values}


def _table(tensors: Sequence[Tensor], facts: Mapping[str, Any]) -> Table:
    columns = (
        Column("tensor", "tensor"),
        Column("spec", "axes", "spec", drop=6),
        Column("bytes_formula", "bytes", "formula"),
        *((Column("bytes_value", "value", "bytes"),) if "saved_bytes" in facts else ()),
    )
    sections = tuple(
        tuple({"tensor": paths.short(line.path), **_cells(line)} for _, _, line in together)
        for _, together in groupby(tensors, key=lambda tensor: tensor.place)
    )
    totals: tuple[Row, ...] = ({"tensor": "total", "bytes_value": facts.get("saved_bytes")},)
    return columns, sections, totals if "saved_bytes" in facts else ()
