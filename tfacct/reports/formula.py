"""The formulas themselves: every line of the ledger in letters, and the total factored for reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal, get_args

from tfacct.algebra.factored import Factored
from tfacct.algebra.symbols import Formula, SymbolicModel, block_letters, in_symbols
from tfacct.base.errors import UsageError, nearest
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS, Axes, Size, renamed
from tfacct.ledger.evaluated import Product
from tfacct.ledger.groups import KEPT, SEEN, Ledger
from tfacct.ledger.lines import CHUNK, HALF, LONGEST, SHARES, WINDOW, Matmul, State
from tfacct.ledger.storage import width
from tfacct.ledger.workload import CHUNKS, COMPRESSED, OF_WINDOWS, ONE_BY_ONE, PADDED, PATCHES, Request, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Kind, Report, Row, Table
from tfacct.reports import compose, conventions, counting, params, sentences
from tfacct.reports import latent_attention as latent
from tfacct.reports.counting import Counting
from tfacct.reports.formula_legend import legend_notes
from tfacct.reports.formula_ranks import Divided, along_tokens, check, letters_of, on_rank, read, total_of

Of = Literal["flops", "params", "kv", "train", "saved"]

CACHED = "bf16"


@record
class _Words:
    """How a count is spoken of; `unit` and `total` are its keys in the JSON."""

    title: str
    line: str
    axes: str
    unit: str
    label: str
    kind: Kind
    total: str
    convention: str
    notes: tuple[str, ...]


_FLOPS = _Words(
    title="one forward pass",
    line="operation",
    axes="einsum",
    unit="flops",
    label="FLOPs",
    kind="flops",
    total="total_flops",
    convention=conventions.products_convention(Request(), masked=False),
    notes=(f"{conventions.products_note(Request(), masked=False)} O is T, and written T.", conventions.left_out(())),
)
WORDS: dict[str, _Words] = {
    "flops": _FLOPS,
    "train": replace(
        _FLOPS,
        title="one training step",
        convention=f"{_FLOPS.convention}; backward 2 x forward",
        notes=("A forward and a backward pass; the optimizer's update is left out.", *_FLOPS.notes),
    ),
    "params": _Words(
        title="parameters",
        line="parameter",
        axes="axes",
        unit="params",
        label="params",
        kind="params",
        total="total_params",
        convention=params.CONVENTION,
        notes=("Every stored tensor once, biases and norms included.",),
    ),
    "kv": _Words(
        title="KV cache",
        line="state",
        axes="axes",
        unit="elements",
        label="elements",
        kind="count",
        total="kv_cache_elements",
        convention="elements an engine must keep for every token of the context; weights left out",
        notes=(f"Bytes: elements × the bytes of the cache's dtype, {width(CACHED).bits // 8} in {CACHED}.",),
    ),
}


@record
class Line:
    """One line of the ledger in letters, and in numbers where there are any; `weights`: of a product's own module."""

    path: str
    spec: str
    count: Factored | Divided
    values: Mapping[str, int]
    weights: Factored | Divided | None


def formula(
    subject: LoadedModel,
    request: Request | None = None,
    *,
    of: Of = "flops",
    family: bool = False,
    terms: Counting | None = None,
    axes: Mapping[str, str | None] | None = None,
    sp: bool = False,
) -> Report:
    """A count in letters, line by line: FLOPs, stored parameters, cached elements, or the bytes that a training step
    keeps, of the recipe in `terms`. `axes`: ranks of a mesh, numbers or letters; the count is that of one. Raises
    UsageError.

    Of a model its values stand beside them, at the workload of `request`; of a `family`, which has no sizes, only the
    biases and ties of `subject` count. In the report's facts, `total_formula` and the formulas of the lines are what
    sympy parses, every letter a symbol: `sympify(text, locals={letter: Symbol(letter) for letter in facts["legend"]})`.
    Without `locals` sympy reads S, N, E, I and O as names of its own.
    """
    request = request or Request()
    _check(subject, request, of, family)
    ranks = read(axes or {})
    idle = along_tokens(ranks, sp)
    if of == "saved":
        from tfacct.reports.formula_saved import formula_saved

        return formula_saved(subject, request, terms or Counting(), family=family, axes=ranks)
    if terms is not None and (terms.trained or terms.dtype):
        what = option(terms.trained[0][0] if terms.trained else "dtype")
        raise UsageError(f"{what} applies to a training step's bytes: it needs {option('of', 'saved')}")
    if of == "kv":
        counting.keeping([subject])
    given, subject = subject, subject.settled(counting.workload(subject, request))
    words, symbolic = _words(subject, of), in_symbols(subject.architecture, fixed=subject.config.constant_axes)
    workloads = not family and of != "params"
    work = counting.workload(subject, request) if workloads else None
    at = {} if work is None else work.axes()
    lines = _lines(subject.ledger, symbolic, of, None if family else at)
    total: Factored | Divided = _total(symbolic, of).written
    how: list[str] = []
    if ranks:
        check(subject, ranks, of, work)
        lines = on_rank(lines, symbolic, ranks, of)
        total, how = total_of(subject, symbolic, ranks, _counts(symbolic.ledger, symbolic.at, of), of)
    legend = legend_of(symbolic, lines, total, {} if family else sizes_of(subject, at) | at)
    legend |= letters_of({axis: text for axis, text in ranks.items() if (axis, of) != ("ep", "kv")})
    summed = {} if letters_of(ranks) or ("pp" in ranks and of == "params") else _summed(words, lines)
    facts = {
        **({"model": subject.family} if family else {}),
        "biases_and_ties_of": subject.name,
        "workload": None if work is None else counting.workload_facts(work, dtype=CACHED if of == "kv" else None),
        "of": of,
        "latent_attention": latent.form(subject),
        "total_formula": total.code,
        "total_text": total.text,
        "total_latex": total.latex,
        **summed,
        "lines": [{"path": line.path, **_cells(words, line), "latex": line.count.latex} for line in lines],
        "legend": legend,
    }
    where = compose.of_workload([subject], request) if workloads else ""
    return compose.report(
        "formula",
        [subject],
        _table(words, lines, facts),
        [facts],
        title=f"{subject.family if family else compose.name_of(subject)}: {title_of(words.title, where)}",
        convention=words.convention,
        notes=lambda _: (
            f"total = {total.text}",
            *legend_notes(legend),
            *how,
            *idle,
            *words.notes,
            *_special_notes(subject, symbolic, words, family),
            *(latent.written_notes(given, subject) if words.line == "operation" else ()),
        ),
        requests=[] if family else [request],
        defaults=[] if family else [subject],
        headline="" if family else words.total,
    )


def title_of(what: str, where: str) -> str:
    """What is counted, and of which step or at which context its values are."""
    if where.startswith("of "):
        return f"{what} {where}, in symbols"
    return f"{what}, in symbols and {where}" if where else f"{what}, in symbols"


def _words(subject: LoadedModel, of: Of) -> _Words:
    """How the count is spoken of: without attention nothing is said of keys."""
    words = WORDS[of]
    if of == "params" or (sentences.attends([subject]) and (subject.logits or of == "kv")):
        return words
    if of == "kv":
        kept = "elements an engine must keep between steps, the same at every context; weights left out"
        return replace(words, title="state", convention=kept, notes=(*words.notes, *sentences.state_notes([subject])))
    said = (
        f"{conventions.products_note(Request(), False, [subject])}{' O is T, and written T.' if subject.logits else ''}"
    )
    counted = conventions.products_convention(Request(), False, [subject])
    counted += words.convention.removeprefix(_FLOPS.convention)
    return replace(words, convention=counted, notes=(*words.notes[:-2], said, conventions.left_out([subject])))


def _check(subject: LoadedModel, request: Request, of: str, family: bool) -> None:
    if of not in get_args(Of):
        raise UsageError(f"{option('of')} is flops, params, kv, train or saved, not {of!r}", nearest(of, get_args(Of)))
    if request == Request():
        return
    step = f"{option('ctx')}, {option('tokens')}, {option('decode')}"
    if family:
        raise UsageError(
            f"{subject.family} is a family and has no sizes: leave {step} and {option('batch')} out",
            f"name one of its models, such as {subject.name}",
        )
    if of == "params":
        raise UsageError(f"parameters do not depend on the workload: leave {step} and {option('batch')} out")
    if of == "kv" and (request.tokens is not None or request.decode):
        what = (
            "the KV cache holds the whole context"
            if sentences.attends([subject])
            else "the state covers the whole context"
        )
        raise UsageError(f"{what}, old tokens and new: leave {option('tokens')} and {option('decode')} out")
    work = counting.workload(subject, request)
    if of in ("train", "saved") and work.tokens != work.context:
        raise whole_sequences("of", of)


def _counts(ledger: Ledger, at: Axes, of: Of) -> dict[str, Size]:
    """By line, in numbers or in letters: whatever the ledger's sizes and `at` are."""
    if of == "params":
        return ledger.parameters()
    if of == "kv":
        return ledger.states(at)
    counted: dict[str, Size] = {}
    for product in ledger.products(at):
        counted[product.path] = counted.get(product.path, 0) + _flops(product, of)
    return counted


def _total(symbolic: SymbolicModel, of: Of) -> Formula:
    if of == "params":
        return symbolic.parameters()
    if of == "kv":
        return symbolic.cached()
    return symbolic.flops(lambda product: _flops(product, of))


def _flops(product: Product, of: Of) -> Size:
    return product.forward + (product.backward if of == "train" else 0)


def _lines(ledger: Ledger, symbolic: SymbolicModel, of: Of, at: Axes | None) -> list[Line]:
    """Every line in letters and, where `at` is a workload, in numbers."""
    values: dict[str, dict[str, Size]] = {}
    if at is not None:
        values[f"{WORDS[of].unit}_value"] = _counts(ledger, at, of)
        values |= {"bytes_value": ledger.state_bytes(at, width(CACHED))} if of == "kv" else {}
    specs, weights = _specs(ledger), _weights(symbolic)
    return [
        Line(
            path=path,
            spec=specs[path],
            count=symbolic.formula([count]).written,
            values={key: int(by_path[path]) for key, by_path in values.items()},
            weights=weights.get(path),
        )
        for path, count in _counts(symbolic.ledger, symbolic.at, of).items()
    ]


def _specs(ledger: Ledger) -> dict[str, str]:
    """The axes of every product, state and parameter, by path; of a shared weight, as the first line has them.

    Blocks whose sizes differ share a path: then its letters are the parts', which stand for those of each kind.
    """
    found: dict[str, tuple[str, str]] = {}
    for group in ledger.groups:
        for line in group.lines:
            named = {line.path: line.spec} if isinstance(line, (Matmul, State)) else {}
            named |= {parameter.path: " ".join(parameter.axes) for parameter in line.parameters()}
            for path, spec in named.items():
                own = spec, renamed(spec, group.names)
                known = found.setdefault(path, own)
                if known[0] == spec and known != own:
                    found[path] = spec, spec
    return {path: told for path, (_, told) in found.items()}


def _weights(symbolic: SymbolicModel) -> dict[str, Factored]:
    """The parameters of each module, weight and bias together."""
    stored = symbolic.ledger.parameters().items()
    modules = groupby(stored, key=lambda tensor: paths.module_of(tensor[0]))
    return {module: symbolic.formula(count for _, count in tensors).written for module, tensors in modules}


def _cells(words: _Words, line: Line) -> dict[str, Any]:
    """What the table and the JSON say of a line."""
    own = {"params_formula": line.weights.code if line.weights else None} if words.line == "operation" else {}
    return {"spec": line.spec, f"{words.unit}_formula": line.count.code, **own, **line.values}


def _summed(words: _Words, lines: list[Line]) -> dict[str, int]:
    """The totals in numbers, under the names that other commands give them."""
    names = {f"{words.unit}_value": words.total, "bytes_value": "kv_cache_bytes"}
    keys = {key: None for line in lines for key in line.values}
    return {names[key]: sum(line.values[key] for line in lines) for key in keys}


def _table(words: _Words, lines: list[Line], facts: Mapping[str, Any]) -> Table:
    products, value = words.line == "operation", f"{words.unit}_value"
    numbers = (Column(value, "value", words.kind),) if words.total in facts else ()
    stored = (Column("bytes_value", f"in {CACHED}", "bytes"),) if "kv_cache_bytes" in facts else ()
    columns = (
        Column(words.line, words.line),
        Column("spec", words.axes, "spec", drop=6),
        Column(f"{words.unit}_formula", words.label, "formula"),
        *((Column("params_formula", "params", "formula", drop=4, empty="–"),) if products else ()),
        *numbers,
        *stored,
    )

    def section(line: Line) -> str:
        return paths.heading_of(line.path) if products else paths.holder_of(line.path)

    sections: list[tuple[Row, ...]] = [
        tuple({words.line: paths.short(line.path), **_cells(words, line)} for line in together)
        for _, together in groupby(lines, key=section)
    ]
    if not numbers:
        return columns, tuple(sections), ()
    total = {
        words.line: "total",
        "params_formula": "",
        value: facts[words.total],
        "bytes_value": facts.get("kv_cache_bytes"),
    }
    return columns, tuple(sections), (total,)


def sizes_of(subject: LoadedModel, at: Axes) -> dict[str, int]:
    """The sizes of a model, by letter, with the keys of its windowed blocks where there is a workload."""
    sizes: dict[str, int] = {}
    for group in subject.ledger.groups:
        sizes |= group.named()
        if WINDOW in group.axes and at:
            sizes |= {SEEN: group.bound(at)["S"], KEPT: group.bound(at, kept=True)["S"]}
        if CHUNK in group.axes and at:
            sizes |= {letter: group.bound(at)[letter] for letter in (CHUNKS, ONE_BY_ONE)}
        if at:
            of_keys = (letter for named in COMPRESSED.values() for letter in named.values())
            bound, there = (PATCHES, *OF_WINDOWS, *SHARES, *of_keys), group.bound(at)
            marks = dict.fromkeys(OF_WINDOWS[1:], group.names.get(HALF, HALF).removeprefix(HALF))
            sizes |= {f"{axis}{marks.get(axis, '')}": there[axis] for axis in bound if axis in there}
    stacks = zip(block_letters(subject.architecture), subject.architecture.every_stack, strict=True)
    return sizes | {letter: stack.count for letter, stack in stacks}


def legend_of(
    symbolic: SymbolicModel, lines: list[Line], total: Factored | Divided, values: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """Every letter that is shown, once, with its meaning and, of a model, its value."""
    shown = " ".join(f"{line.spec} {line.count.code} {line.weights.code if line.weights else ''}" for line in lines)
    letters = set(AXIS.findall(f"{shown} {total.code}"))
    letters |= {factor for letter in symbolic.products if letter in letters for factor in symbolic.factors(letter)}
    named = ((WINDOW, {SEEN, KEPT}), (LONGEST, {PADDED}))  # which their meanings name
    letters |= {letter for letter, by in named if letters & by}
    return {
        letter: {"meaning": meaning, **({"value": values[letter]} if letter in values else {})}
        for letter, meaning in symbolic.legend.items()
        if letter in letters
    }


def _special_notes(subject: LoadedModel, symbolic: SymbolicModel, words: _Words, family: bool) -> Iterator[str]:
    """What another model's formulas need not have: sizes that are fixed, a weight of two lines, biases and ties."""
    sizes = sizes_of(subject, {})
    fixed = ", ".join(
        f"{letter} = {sizes[letter]}" for letter in sorted(subject.config.constant_axes) if letter in sizes
    )
    for letter in symbolic.products:
        if len(symbolic.factors(letter)) == 1:
            yield f"{fixed} in every {subject.family}: {symbolic.factors(letter)[0]} is written {letter}."
    if words.line == "operation":
        every = (line for group in subject.ledger.groups for line in group.lines)
        tied = [(line.path, line.weight) for line in every if isinstance(line, Matmul) and line.weight is not None]
        for path, weight in dict.fromkeys(tied):
            yield f"{path} is tied to {weight}: it has no parameters of its own."
    if family:
        yield f"{subject.family} is a family: any sizes, with the biases and ties of {compose.name_of(subject)}."
