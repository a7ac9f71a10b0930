"""`formula`: a count in symbols, line by line, and the total factored for reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, get_args

from tfacct.algebra.factored import BLOCKS, Factored
from tfacct.algebra.model_lines import CACHE_DTYPE, counts_in, sizes_by_axis, symbolic_lines, total_in
from tfacct.algebra.rank_formulas import RankFormula, SymbolicLine
from tfacct.algebra.symbols import SymbolicModel, in_symbols
from tfacct.architecture.parts import MlaMode
from tfacct.base.errors import UsageError, nearest
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS
from tfacct.ledger.groups import CACHED_KEYS, VISIBLE_KEYS
from tfacct.ledger.lines import LONGEST, WINDOW, Matmul
from tfacct.ledger.workload import PADDED, Request, Workload, sequences_only
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Kind, Row, Table
from tfacct.parallel.mesh import Mesh, check_tp_options, tp_axis, tp_order
from tfacct.parallel.rank_formula import (
    AXES,
    EXAMPLE,
    Layout,
    RankTotal,
    check_layout,
    layout_of,
    lines_of_rank,
    total_of_rank,
)
from tfacct.reports import build, model_notes, params
from tfacct.reports import ranks as one_rank
from tfacct.reports.build import Axis, ModelReport, WorkloadFacts
from tfacct.reports.metrics import Counting

if TYPE_CHECKING:
    from tfacct.training.saved_formula import SavedFormula
    from tfacct.training.step import TrainingStep

Of = Literal["flops", "params", "kv", "train", "saved"]
LEGEND_WIDTH = 79
"""Width of the lines of the legend: a terminal of 80 columns does not break them."""


class FormulaLine(TypedDict):
    """One matmul, tensor or state in symbols."""

    path: str
    spec: NotRequired[str]
    flops_formula: NotRequired[str]
    params_formula: NotRequired[str | None]
    elements_formula: NotRequired[str]
    bytes_formula: NotRequired[str]
    flops_value: NotRequired[int]
    params_value: NotRequired[int]
    elements_value: NotRequired[int]
    bytes_value: NotRequired[int]
    latex: str


class LayerFormula(TypedDict):
    """What one layer of a kind saves for its backward pass, in symbols."""

    kind: str
    bytes_formula: str
    text: str


class FormulaReport(ModelReport):
    """Formula of a count."""

    _line = FormulaLine

    workload: WorkloadFacts | None
    biases_and_ties_of: str | None
    of: Of
    latent_attention: MlaMode | None
    total_formula: str
    total_text: str
    total_latex: str
    legend: dict[str, Axis]
    total_flops: int | None
    total_params: int | None
    kv_cache_elements: int | None
    kv_cache_bytes: int | None
    saved_bytes: int | None
    saved_by_layer: list[LayerFormula] | None


@record
class _Words:
    """Words and columns of a count; `unit` and `total` are its keys in the JSON."""

    line: str
    unit: Literal["flops", "params", "elements", "bytes"]
    total: str
    title: str = ""
    convention: str = ""
    notes: Sequence[str] = ()
    axes: str = "axes"

    @property
    def label(self) -> str:
        """The header of its column."""
        return "FLOPs" if self.unit == "flops" else self.unit

    @property
    def kind(self) -> Kind:
        """The kind of its numbers."""
        return "count" if self.unit == "elements" else self.unit


WORDS: dict[str, _Words] = {
    "flops": _Words("operation", "flops", "total_flops", title="FLOPs of one forward pass", axes="einsum"),
    "train": _Words(
        "operation",
        "flops",
        "total_flops",
        title="FLOPs of one training step",
        notes=(model_notes.STEP,),
        axes="einsum",
    ),
    "params": _Words("parameter", "params", "total_params", title="parameters", convention=params.CONVENTION),
    "kv": _Words(
        "state",
        "elements",
        "kv_cache_elements",
        title="KV cache",
        convention="elements that an engine caches for all tokens of the context; without weights",
    ),
    "saved": _Words("tensor", "bytes", "saved_bytes"),
}


@record
class _Counted:
    """A count in symbols: its lines by section, and the facts and notes that are its own."""

    words: _Words
    symbolic: SymbolicModel
    sections: Sequence[Sequence[SymbolicLine]]
    total: Factored | RankFormula
    sizes: Mapping[str, int]
    facts: Mapping[str, Any]
    before: Sequence[str] = ()
    """Notes before the formula of the total."""
    after: Sequence[str] = ()
    layout: Layout = field(default_factory=dict)
    dtype: str | None = None

    @property
    def lines(self) -> list[SymbolicLine]:
        """The lines of all sections."""
        return [line for section in self.sections for line in section]


def formula(
    model: LoadedModel,
    request: Request | None = None,
    *,
    of: Of = "flops",
    family: bool = False,
    terms: Counting | None = None,
    axes: Mapping[str, str | None] | None = None,
    sp: bool = False,
) -> FormulaReport:
    """A count in symbols, line by line: FLOPs, stored parameters, cached elements, or the bytes that a training step
    with the recipe in `terms` saves for backward. `axes`: ranks of a layout, numbers or symbols; the count is that of
    one rank. Raises UsageError.

    A model's values at the workload of `request` are in a column; a `family` has no sizes, and takes only the biases
    and ties of `model`. In the report's facts, `total_formula` and the formulas of the lines are what sympy parses,
    every axis a symbol: `sympify(text, locals={axis: Symbol(axis) for axis in facts["legend"]})`. Without
    `locals` sympy reads S, N, E, I and O as names of its own.
    """
    request = request or Request()
    _check(model, request, of, family)
    layout = layout_of(axes or {})
    check_tp_options(Mesh(EXAMPLE if "tp" in layout else 1, sp))
    terms = terms or Counting()
    if of != "saved" and (terms.trained or terms.dtype):
        what = option(terms.trained[0][0] if terms.trained else "dtype")
        raise UsageError(f"{what} applies to a training step's bytes: it needs {option('of', 'saved')}")
    work = None if family or of == "params" else selection.workload(model, request)
    if of == "saved":
        found = _saved(model, selection.workload(model, request), terms, layout, family=family)
    else:
        found = _ledger(model, work, of, layout, family=family, sp=sp)
    words, lines, total = found.words, found.lines, found.total
    of_layout = {text: {"meaning": AXES[axis]} for axis, text in found.layout.items() if not text.isdigit()}
    legend = _legend(found.symbolic, lines, total, found.sizes) | of_layout
    facts = {
        **({"model": model.family} if family else {}),
        "biases_and_ties_of": model.name,
        "workload": None if work is None else selection.workload_facts(work, dtype=found.dtype),
        "of": of,
        "latent_attention": None if of == "saved" else model.settled(selection.workload(model, request)).mla_mode,
        "total_formula": total.code,
        "total_text": total.text,
        "total_latex": total.latex,
        **found.facts,
        "lines": [{"path": line.path, **_cells(words, line), "latex": line.count.latex} for line in lines],
        "legend": legend,
    }
    where = "" if work is None else build.of_workload([model], request)
    title = f"{model.family if family else build.label(model)}: {_title(words.title, where)}"
    return build.report(
        FormulaReport,
        [model],
        _table(words, found.sections, facts),
        [facts],
        title=f"{title}, on one rank" if layout else title,
        convention=words.convention,
        notes=lambda _: (*found.before, f"total = {total.text}", *_legend_notes(legend), *found.after),
        details=lambda _: [model_notes.left_out([model])] if words.line == "operation" else [],
        requests=[] if family else [request],
        defaults=[] if family else [model],
        headline="" if family else words.total,
    )


def _check(model: LoadedModel, request: Request, of: str, family: bool) -> None:
    if of not in get_args(Of):
        raise UsageError(f"{option('of')} is flops, params, kv, train or saved, not {of!r}", nearest(of, get_args(Of)))
    if request == Request():
        return
    step = f"{option('ctx')}, {option('tokens')}, {option('decode')}"
    if family:
        raise UsageError(
            f"{model.family} is a family, without sizes: leave {step} and {option('batch')} out",
            f"name one of its models, such as {model.name}",
        )
    if of == "params":
        raise UsageError(f"parameters do not depend on the workload: leave {step} and {option('batch')} out")
    if of == "kv" and request.new is not None:
        what = "KV cache" if model_notes.attends([model]) else "state"
        raise UsageError(
            f"the {what} covers the whole context, cached tokens and new ones:"
            f" leave {option('tokens')} and {option('decode')} out"
        )
    work = selection.workload(model, request)
    if of in ("train", "saved") and work.tokens != work.context:
        raise sequences_only("of", of)


def _ledger(given: LoadedModel, work: Workload | None, of: Of, layout: Layout, *, family: bool, sp: bool) -> _Counted:
    """A count of the ledger's lines."""
    if of == "kv":
        selection.keeping([given])
    model = given.settled(work or selection.workload(given, Request()))
    words, symbolic = _words(model, of), in_symbols(model.architecture, fixed=model.config.constant_axes)
    at = {} if work is None else work.axes()
    lines = symbolic_lines(model.ledger, symbolic, of, words.unit, None if family else at)
    total: Factored | RankFormula = total_in(symbolic, of).written
    how: list[str] = []
    if layout:
        check_layout(model, layout, of, work)
        lines = lines_of_rank(lines, symbolic, layout, of)
        counts = counts_in(symbolic.ledger, symbolic.at, of)
        rank = total_of_rank(model.ledger, symbolic, layout, counts, of)
        total, how = rank.total, _layout_notes(rank, layout, of)
    has_symbols = any(not text.isdigit() for text in layout.values())
    operations = words.line == "operation"

    def heading(line: SymbolicLine) -> str:
        return paths.heading_of(line.path) if operations else paths.holder_of(line.path)

    return _Counted(
        words,
        symbolic,
        sections=[[*section] for _, section in groupby(lines, key=heading)],
        total=total,
        sizes={} if family else sizes_by_axis(model.ledger, model.architecture, at) | at,
        facts={} if has_symbols or ("pp" in layout and of == "params") else _summed(words, lines),
        after=[
            *how,
            *([one_rank.SP] if sp else []),
            *words.notes,
            *_special_notes(model, symbolic, words, family),
            *(model_notes.latent_formula_notes(given, model) if operations else ()),
        ],
        layout={axis: text for axis, text in layout.items() if (axis, of) != ("ep", "kv")},
        dtype=CACHE_DTYPE if of == "kv" else None,
    )


def _words(model: LoadedModel, of: Of) -> _Words:
    """Words for the count of a model."""
    words = WORDS[of]
    if words.line == "operation":
        convention = model_notes.products_counted([model])
        if model.logits:
            convention += ", so O = T"
        if of == "train":
            convention += "; backward 2 × forward"
        return replace(words, convention=convention)
    if of == "kv" and not model_notes.attends([model]):
        state = "elements that an engine keeps between steps, the same for every context; without weights"
        return replace(words, title="state", convention=state, notes=model_notes.state_notes([model]))
    return words


def _summed(words: _Words, lines: list[SymbolicLine]) -> dict[str, int]:
    """The totals in numbers, under the names that other commands give them."""
    names = {"bytes_value": "kv_cache_bytes", f"{words.unit}_value": words.total}
    keys = {key: None for line in lines for key in line.values}
    return {names[key]: sum(line.values[key] for line in lines) for key in keys}


def _saved(model: LoadedModel, work: Workload, terms: Counting, layout: Layout, *, family: bool) -> _Counted:
    """Bytes saved for backward, as a polynomial in every size. Raises UsageError where the training step is not
    answered, or has no such polynomial."""
    from sympy import expand

    from tfacct.training.memory import training_memory
    from tfacct.training.saved_formula import SEVERAL, saved_formula

    if layout:
        named = " ".join(option(axis, size) for axis, size in layout.items())
        raise UsageError(f"{option('of', 'saved')} does not work with {named}", "`tfacct train` counts one rank")
    recipe = terms.recipe.for_model(model)
    work = replace(work, context=1, tokens=1, batch=SEVERAL) if family else work
    step = training_memory(model, work, recipe).step
    found = saved_formula(model, recipe, work)
    sizes = {} if family else sizes_by_axis(model.ledger, model.architecture, work.axes()) | work.axes()
    if not found.total.is_polynomial(*found.total.free_symbols) or (
        not family and found.at(sizes) != int(step.saved_bytes())
    ):
        raise UsageError(
            f"{model.name}: the saved activations of its step are not a polynomial in its sizes",
            "`tfacct train` counts it",
        )
    symbolic, step_axes = found.symbolic, [axis for axis in ("B", "T") if axis in found.symbolic.symbols]
    layers = {
        kind: symbolic.in_front(expand(found.step.bytes_in(group).of(found.step.saved_in(group))), step_axes)
        for kind, group in zip(model.architecture.kinds(), found.step.graph.layers, strict=True)
    }
    return _Counted(
        replace(WORDS["saved"], title=f"bytes saved in a training step in {recipe.dtype}", convention=recipe.counted),
        symbolic,
        sections=[*_saved_tensors(found, None if family else step)],
        total=symbolic.in_front(found.total, [one for one in symbolic.symbols if one.startswith(BLOCKS)], step_axes),
        sizes=sizes,
        facts={
            **({} if family else {"saved_bytes": int(step.saved_bytes())}),
            "saved_by_layer": [
                {"kind": kind, "bytes_formula": layer.code, "text": layer.text} for kind, layer in layers.items()
            ],
        },
        before=[f"layer{f' ({kind})' if len(layers) > 1 else ''} = {layer.text}" for kind, layer in layers.items()],
        after=["All tokens are new, so S = T.", *_saved_range(model, work)],
        dtype=recipe.dtype,
    )


def _saved_tensors(found: SavedFormula, step: TrainingStep | None) -> Iterator[list[SymbolicLine]]:
    """Saved tensors of each group in symbols and, at a workload, in bytes."""
    known = found.step if step is None else step
    for group, same in zip(found.step.graph.groups, known.graph.groups, strict=True):
        tensors = found.step.saved_in(group)
        counts = found.step.bytes_in(group).each(tensors)
        values = known.bytes_in(same).each(known.saved_in(same))
        yield [
            SymbolicLine(
                tensor.path,
                tensor.axes,
                found.symbolic.formula([group.count * count]).written,
                {} if step is None else {"bytes_value": int(same.count * value)},
                None,
            )
            for tensor, count, value in zip(tensors, counts, values, strict=True)
            if count != 0
        ]


def _legend(
    symbolic: SymbolicModel, lines: list[SymbolicLine], total: Factored | RankFormula, values: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """Every axis that is shown, once, with its meaning and, of a model, its value."""
    shown = " ".join(f"{line.spec} {line.count.code} {line.weights.code if line.weights else ''}" for line in lines)
    axis_names = set(AXIS.findall(f"{shown} {total.code}"))
    axis_names |= {factor for axis in symbolic.products if axis in axis_names for factor in symbolic.factors(axis)}
    named = ((WINDOW, {VISIBLE_KEYS, CACHED_KEYS}), (LONGEST, {PADDED}))  # which their meanings name
    axis_names |= {axis for axis, by in named if axis_names & by}
    return {
        axis: {"meaning": meaning, **({"value": values[axis]} if axis in values else {})}
        for axis, meaning in symbolic.legend.items()
        if axis in axis_names
    }


def _cells(words: _Words, line: SymbolicLine) -> dict[str, Any]:
    """Cells of a line in the table and the JSON."""
    of_params = {"params_formula": line.weights.code if line.weights else None} if words.line == "operation" else {}
    return {"spec": line.spec, f"{words.unit}_formula": line.count.code, **of_params, **line.values}


def _table(words: _Words, sections: Sequence[Sequence[SymbolicLine]], facts: Mapping[str, Any]) -> Table:
    value, numbers, cached = f"{words.unit}_value", words.total in facts, facts.get("kv_cache_bytes")
    columns = (
        Column(words.line, words.line),
        Column("spec", words.axes, "spec", drop=5),
        Column(f"{words.unit}_formula", words.label, "formula"),
        *((Column("params_formula", "params", "formula", drop=1, empty="–"),) if words.line == "operation" else ()),
        *((Column(value, "value", words.kind),) if numbers else ()),
        *((Column("bytes_value", f"in {CACHE_DTYPE}", "bytes"),) if cached is not None else ()),
    )
    rows: tuple[tuple[Row, ...], ...] = tuple(
        tuple({words.line: paths.short(line.path), **_cells(words, line)} for line in lines)
        for lines in sections
        if lines
    )
    total: Row = {words.line: "total", "params_formula": "", "bytes_value": cached}
    return columns, rows, ({**total, value: facts[words.total]},) if numbers else ()


def _title(what: str, where: str) -> str:
    """What is counted, and of which step or at which context its values are."""
    if where.startswith("of "):
        return f"{what} {where}, in symbols"
    return f"{what}, in symbols and {where}" if where else f"{what}, in symbols"


def _special_notes(model: LoadedModel, symbolic: SymbolicModel, words: _Words, family: bool) -> Iterator[str]:
    """What another model's formulas need not have: sizes that are fixed, a weight of two lines, biases and ties."""
    sizes = sizes_by_axis(model.ledger, model.architecture, {})
    fixed = ", ".join(f"{axis} = {sizes[axis]}" for axis in sorted(model.config.constant_axes) if axis in sizes)
    for axis in symbolic.products:
        if len(symbolic.factors(axis)) == 1:
            yield f"{fixed} in every {model.family} model, so {axis} replaces {symbolic.factors(axis)[0]}."
    if words.line == "operation":
        every = (line for group in model.ledger.groups for line in group.lines)
        tied = [(line.path, line.weight) for line in every if isinstance(line, Matmul) and line.weight is not None]
        for path, weight in dict.fromkeys(tied):
            yield f"{path} is tied to {weight}: it has no weight of its own."
    if family:
        as_in = f"with the same biases and weight tying as {build.label(model)}"
        yield f"These formulas hold for every {model.family} model {as_in}."


def _layout_notes(rank: RankTotal, layout: Layout, of: Of) -> list[str]:
    """Which axes of the lines the layout divides, and whose total is written."""
    notes = []
    if tp := layout.get("tp"):
        axis_names = " ".join(sorted(filter(tp_axis, rank.axis_names), key=tp_order))
        notes.append(
            f"{tp} ranks shard {axis_names}: on one rank, a line with one or more of these axes is divided by {tp}."
        )
    if cp := layout.get("cp"):
        notes.append(f"{cp} context-parallel ranks shard {'S' if of == 'kv' else 'T'}.")
    if ep := layout.get("ep"):
        share = f", so their work is divided by {tp}" if tp else "; each rank has its own batch"
        tokens = "" if of == "params" else f" Routing is assumed even over the experts{share}."
        notes.append(one_rank.EP_CACHE if of == "kv" else f"{ep} ranks shard E; each expert is unsharded.{tokens}")
    if pp := layout.get("pp"):
        many = f"{pp} pipeline stages split"
        stage = {
            "first": "the first stage, with the modules before the layers",
            "last": "the last stage, with the modules after the layers",
            "each": "each",
        }
        notes.append(f"{many} the layers. The total is that of {stage[rank.stage]}.")
    return notes


def _saved_range(model: LoadedModel, work: Workload) -> Iterator[str]:
    """Notes on the steps that the formula holds for."""
    many = "B = 1" if work.batch == 1 else "B of at least 2"
    yield f"Valid only for {many}: a single sequence has another memory layout than several."
    windows = {stack.block.window for stack in model.architecture.stacks if stack.block.window is not None}
    if past := {window for window in windows if work.tokens >= window}:
        yield f"Valid for contexts of at least {max(past):,}, the window; shorter contexts save other tensors."
    elif windows:
        yield f"Valid for contexts below {min(windows):,}, the window; longer contexts save other tensors."


def _legend_notes(legend: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The axes, as many on a line as fit."""
    notes: list[str] = []
    for axis, about in legend.items():
        value = f" = {about['value']:,}" if "value" in about else ""
        entry = f"{axis}{value}: {about['meaning']}"
        if notes and len(f"{notes[-1]}; {entry}") < LEGEND_WIDTH:
            notes[-1] += f"; {entry}"
        else:
            notes.append(entry)
    return notes
