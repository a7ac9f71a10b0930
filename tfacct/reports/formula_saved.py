"""Bytes that a training step saves for its backward pass, in symbols: tensor by tensor, a layer, and all together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tfacct.algebra.factored import BLOCKS
from tfacct.algebra.symbols import SymbolicModel, block_letters, in_symbols, with_sizes
from tfacct.architecture import letters
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS
from tfacct.ledger.storage import width
from tfacct.ledger.workload import CHUNKS, PATCHES, Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table
from tfacct.reports import compose, counting
from tfacct.reports.conventions import TRAINING
from tfacct.reports.counting import Counting
from tfacct.reports.formula import Line, legend_of, sizes_of, title_of
from tfacct.reports.formula_legend import legend_notes
from tfacct.reports.training import training_memory
from tfacct.training.memory import changed, plain_graph
from tfacct.training.recipe import FP32, Recipe
from tfacct.training.step import TrainingStep
from tfacct.training.traits import mode_of, traits_of

SEVERAL = 2
"""Sequences of a batch: a single one is laid out differently in memory."""


class SavedFormula(NamedTuple):
    """A step in symbols: the symbols, the step, and all that it saves."""

    symbolic: SymbolicModel
    step: TrainingStep
    total: Any

    def at(self, sizes: Mapping[str, int]) -> Any:
        """The total for some sizes."""
        named = {letter: sizes[letter] for letter in AXIS.findall(str(self.total)) if letter in sizes}
        return self.total.subs({self.symbolic.symbols[letter]: size for letter, size in named.items()})


def formula_saved(
    model: LoadedModel,
    request: Request,
    terms: Counting,
    *,
    family: bool = False,
    axes: Mapping[str, str] | None = None,
) -> Report:
    """Saved bytes as a polynomial in every size. Raises UsageError where the training step is not answered, or has no
    such polynomial."""
    from sympy import expand

    if axes:
        named = " ".join(option(axis, size) for axis, size in axes.items())
        raise UsageError(f"{option('of', 'saved')} does not work with {named}", "`tfacct train` counts one rank")
    recipe, work = terms.recipe.for_model(model), counting.workload(model, request)
    work = replace(work, context=1, tokens=1, batch=SEVERAL) if family else work
    step = training_memory(model, work, recipe).step
    found = saved_formula(model, recipe, work)
    values = {} if family else sizes_of(model, work.axes()) | work.axes()
    if not found.total.is_polynomial(*found.total.free_symbols) or (
        not family and found.at(values) != int(step.saved_bytes())
    ):
        raise UsageError(f"{model.name}: what its step saves is no polynomial in its sizes", "`tfacct train` counts it")
    symbolic, own = found.symbolic, [letter for letter in ("B", "T") if letter in found.symbolic.symbols]
    stacks = [letter for letter in symbolic.symbols if letter.startswith(BLOCKS)]
    sections = [*_tensors(found, None if family else step)]
    lines = [line for section in sections for line in section]
    total = symbolic.in_front(found.total, stacks, own)
    layers = {
        kind: symbolic.in_front(expand(found.step.bytes_in(group).of(found.step.saved_in(group))), own)
        for kind, group in zip(model.architecture.kinds(), found.step.graph.layers, strict=True)
    }
    legend = legend_of(symbolic, lines, total, values)
    facts = {
        **({"model": model.family} if family else {}),
        "biases_and_ties_of": model.name,
        "workload": None if family else counting.workload_facts(work, dtype=recipe.dtype),
        "of": "saved",
        "latent_attention": None,
        "total_formula": total.code,
        "total_text": total.text,
        "total_latex": total.latex,
        **({} if family else {"saved_bytes": int(step.saved_bytes())}),
        "saved_by_layer": [
            {"kind": kind, "bytes_formula": layer.code, "text": layer.text} for kind, layer in layers.items()
        ],
        "lines": [_cells(line) | {"latex": line.count.latex} for line in lines],
        "legend": legend,
    }
    where = "" if family else compose.of_workload([model], request)
    who = model.family if family else compose.name_of(model)
    return compose.report(
        "formula",
        [model],
        _table(sections, facts),
        [facts],
        title=f"{who}: {title_of(f'bytes saved in a training step in {recipe.dtype}', where)}",
        convention=f"as transformers runs it with {recipe.runs_with}: {TRAINING}",
        counted=recipe.counted,
        notes=lambda _: (
            *(f"layer{f' ({kind})' if len(layers) > 1 else ''} = {layer.text}" for kind, layer in layers.items()),
            f"total = {total.text}",
            *legend_notes(legend),
            "Every token is new: S is T, and written T.",
            *_holds(model, work),
        ),
        requests=[] if family else [request],
        defaults=[] if family else [model],
        headline="" if family else "saved_bytes",
    )


def saved_formula(model: LoadedModel, recipe: Recipe, work: Workload) -> SavedFormula:
    """What a step saves that is laid out as this one, in any sizes. Raises UsageError."""
    import sympy

    shape = model.architecture
    if shape.encoder is not None:
        raise UsageError(
            f"{model.name}: {option('of', 'saved')} does not work with encoder–decoders",
            f"`tfacct train {model.name}` counts one at any sizes",
        )
    # One key head for all query heads stays a number: it is a view of one sequence, and copied of several.
    single = work.batch == 1 and any(getattr(part, "kv_heads", 0) == 1 for part in shape.attentions)
    symbolic = in_symbols(shape, fixed=model.config.constant_axes | ({"K"} if single else set()))
    symbols, stacks = symbolic.symbols, block_letters(shape)
    fixed = frozenset(name for name in letters.explained(shape) if name not in symbols)
    in_sizes = with_sizes(shape, symbols.__getitem__, fixed.union(stacks))
    written = replace(model, architecture=in_sizes, ledger=in_sizes.ledger())
    traits = traits_of(model)
    graph = changed(plain_graph(written, work, mode_of(model, recipe), traits), model, work, recipe, traits)
    if len(graph.layers) != len(stacks):
        raise UsageError(f"{model.name}: layers of one kind save different tensors", "`tfacct train` counts them")
    counted = zip(graph.layers, stacks, strict=True)
    graph = graph._replace(layers=tuple(group._replace(count=symbols[letter]) for group, letter in counted))
    tokens = symbols["T"]
    at = Workload(context=tokens, tokens=tokens, batch=symbols["B"]).axes()
    at |= {letter: symbols[letter] for letter in (CHUNKS, PATCHES) if letter in symbols}
    compute, full = width(recipe.dtype), recipe.recompute == "full"
    stored = width(FP32) if recipe.autocast else compute
    step = TrainingStep(graph, symbolic.ledger, at, compute, stored, recompute=full)
    return SavedFormula(symbolic, step, sympy.expand(step.saved_bytes()))


def _holds(model: LoadedModel, work: Workload) -> Iterator[str]:
    """Which steps are laid out as this one."""
    many = "B = 1" if work.batch == 1 else "B of at least 2"
    yield f"Holds for {many}: a single sequence is laid out differently in memory."
    windows = {stack.block.window for stack in model.architecture.stacks if stack.block.window is not None}
    if past := {window for window in windows if work.tokens >= window}:
        yield f"Holds for contexts of at least {max(past):,}, the window: shorter ones save other tensors."
    elif windows:
        yield f"Holds for contexts shorter than {min(windows):,}, the window: longer ones save other tensors."


def _tensors(found: SavedFormula, step: TrainingStep | None) -> Iterator[list[Line]]:
    """Saved tensors of each group in symbols and, at a workload, in bytes."""
    known = found.step if step is None else step
    for group, same in zip(found.step.graph.groups, known.graph.groups, strict=True):
        tensors = found.step.saved_in(group)
        sizes = found.step.bytes_in(group).each(tensors)
        values = known.bytes_in(same).each(known.saved_in(same))
        lines = []
        for tensor, size, value in zip(tensors, sizes, values, strict=True):
            if size != 0:
                cells = {} if step is None else {"bytes_value": int(same.count * value)}
                count = found.symbolic.formula([group.count * size]).written
                lines.append(Line(tensor.path, tensor.axes, count, cells, None))
        yield lines


def _cells(line: Line) -> dict[str, Any]:
    return {"path": line.path, "spec": line.spec, "bytes_formula": line.count.code, **line.values}


def _table(sections: list[list[Line]], facts: Mapping[str, Any]) -> Table:
    columns = (
        Column("tensor", "tensor"),
        Column("spec", "axes", "spec", drop=6),
        Column("bytes_formula", "bytes", "formula"),
        *((Column("bytes_value", "value", "bytes"),) if "saved_bytes" in facts else ()),
    )
    rows: tuple[tuple[Row, ...], ...] = tuple(
        tuple({"tensor": paths.short(line.path), **_cells(line)} for line in lines) for lines in sections if lines
    )
    totals: tuple[Row, ...] = ({"tensor": "total", "bytes_value": facts.get("saved_bytes")},)
    return columns, rows, totals if "saved_bytes" in facts else ()
