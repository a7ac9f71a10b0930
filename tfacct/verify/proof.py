"""Proof with symbolic shapes: the count of the reference model equals the formula as a polynomial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import prod
from typing import Any, Literal, TypeAlias

import sympy

from tfacct.algebra.symbols import Formula, SymbolicModel, in_symbols, with_sizes
from tfacct.architecture.parts import HyperConnection
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import chunks, one_by_one
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD, RATES
from tfacct.ledger.workload import CHUNKS, COMPRESSED, ONE_BY_ONE
from tfacct.output.report import Tick, unwatched
from tfacct.verify.checks import reference_modules
from tfacct.verify.sizes import FIXED, Sizes, layers_tried

Counted: TypeAlias = tuple[dict[str, Any], list[str]]
"""Counts in symbols, and the assumptions about them."""


@record
class Traces:
    """torch's counts with symbols for all sizes, except those that are fixed in a run."""

    shape: Transformer
    sizes: Sizes

    def counted(self, layers: Mapping[str, int], *, first: bool) -> Counted:
        """Counts in the ledger's symbols for a model with this number of layers in each stack. If a recurrence runs
        over tokens or chunks, the `first` call also checks the polynomial with one more number of them."""
        if self.sizes.chunk is not None:
            tried = self.sizes.chunks_tried if first else self.sizes.chunks_tried[:-1]
            return in_chunks(self.sizes.symbols[CHUNKS], [self._chunks(layers, {}, number) for number in tried])
        return self._by_tokens(layers, {}, first=first)

    def at(self, layers: Mapping[str, int], fixed: Mapping[str, int]) -> Counted:
        """Counts with some sizes fixed. Chunked tokens have two chunks, unless the number is fixed."""
        if self.sizes.chunk is not None and "T" not in fixed:
            return self._chunks(layers, fixed, fixed[CHUNKS])
        return self._by_tokens(layers, fixed, first=False)

    def _chunks(self, layers: Mapping[str, int], fixed: Mapping[str, int], number: int) -> Counted:
        """The last chunk has any number of tokens, but is not full."""
        assert self.sizes.chunk is not None
        before, least = (number - 1) * self.sizes.chunk, 2 if number == 1 else 1
        most = (self.sizes.chunk - 1) // self.sizes.together  # the symbol counts groups of tokens
        return self._at_once(layers, fixed, {"T": before} if before else {}, {"T": (least, most)})

    def _by_tokens(self, layers: Mapping[str, int], fixed: Mapping[str, int], *, first: bool) -> Counted:
        if not self.sizes.recurs or "T" in fixed:
            return self._at_once(layers, fixed)
        tried = self.sizes.tokens_tried if first else self.sizes.tokens_tried[:-1]
        runs = [self._at_once(layers, {**fixed, "T": number}) for number in tried]
        return interpolated(self.sizes.symbols["T"], runs, checked=first)

    def _at_once(
        self,
        layers: Mapping[str, int],
        fixed: Mapping[str, int],
        before: Mapping[str, int] | None = None,
        ranges: Mapping[str, tuple[int, int]] | None = None,
    ) -> Counted:
        from tfacct.reference.symbolic import polynomials

        def open_shape(size: Callable[[str], Any]) -> Transformer:
            return with_sizes(self.shape, lambda axis: layers[axis] if axis in layers else size(axis), self.sizes.fixed)

        rests = {**self.sizes.rests, **{axis: (number,) for axis, number in (before or {}).items()}}
        found = polynomials(open_shape, self.sizes.axis_names, fixed, self.sizes.factors(fixed), rests, ranges)
        ledger_symbols = self.sizes.in_ledger_symbols(found.symbols, fixed, rests)
        counts = {
            name: sympy.expand(count.subs(ledger_symbols, simultaneous=True)) for name, count in found.counts.items()
        }
        return counts, found.guards


def in_chunks(chunks: Any, runs: Sequence[Counted]) -> Counted:
    """Counts for any number of chunks, from runs of one, two … chunks: each chunk adds the same. If the third chunk
    does not add what the second does, this is recorded as an assumption."""
    guards = [guard for _, of_run in runs for guard in of_run]
    through = {}
    for name, count in runs[0][0].items():
        second, *further = (sympy.expand(after[name] - before[name]) for (before, _), (after, _) in pairwise(runs))
        guards += [f"{name} is linear in {chunks}" for more in further if more != second]
        through[name] = sympy.expand(count + (chunks - 1) * second)
    return through, guards


def interpolated(tokens: Any, runs: Sequence[Counted], *, checked: bool) -> Counted:
    """Counts for any number of new tokens, from runs of one, two … tokens: the polynomial through all, by Newton's
    forward differences. A `checked` one goes through all but the last; if the last is not on it, this is recorded as an
    assumption."""
    guards = [guard for _, of_run in runs for guard in of_run]
    degree = len(runs) - (2 if checked else 1)
    through = {}
    for name in runs[0][0]:
        differences = [counts[name] for counts, _ in runs]
        count, steps = differences[0], sympy.Integer(1)
        for power in range(1, degree + 1):
            differences = [sympy.expand(after - before) for before, after in pairwise(differences)]
            steps = steps * (tokens - power) / power
            count += steps * differences[0]
        if checked and sympy.expand(differences[1] - differences[0]) != 0:
            guards.append(f"{name} is of degree {degree} in T")
        through[name] = sympy.expand(count)
    return through, guards


By = Literal["symbols", "grid"]

MOST_POINTS = 20_000
"""Largest number of models of a grid; more would take hours."""
NOTHING = "no assumption"
COUNTS: dict[str, Callable[[SymbolicModel], Formula]] = {
    "forward": lambda symbolic: symbolic.flops(lambda product: product.forward),
    "backward": lambda symbolic: symbolic.flops(lambda product: product.backward),
    "parameters": SymbolicModel.parameters,
    "cached": SymbolicModel.cached,
}
"""What is proven, and its formula from the ledger with every size a symbol."""


@record
class Proven:
    """One statement: two polynomials, and the result for their difference."""

    what: str
    formula: Formula | None
    difference: str
    evidence: str
    holds: bool


@record
class Proof:
    """The statements, and the method. `changed`: the missing part of torch's private interface for symbols, if that is
    why a grid was used."""

    by: By
    symbolic: SymbolicModel
    statements: tuple[Proven, ...]
    sizes: Sizes
    changed: str | None = None

    @property
    def holds(self) -> bool:
        """True if every statement holds."""
        return all(statement.holds for statement in self.statements)


def proven(shape: Transformer, *, by: By = "symbols", progress: Tick = unwatched) -> Proof:
    """Compares the formulas of a model with the counts of the reference model, for all sizes.

    Uses a grid without torch's private symbolic shapes. Needs torch, fvcore and sympy.
    """
    reference_modules(option("prove"))
    from tfacct.reference.counting import PrivateInterfaceError

    symbolic, changed = in_symbols(shape, fixed=FIXED, cached=True), None
    sizes = Sizes(shape, symbolic)
    if by == "symbols":
        try:
            return Proof(by, symbolic, tuple(_by_symbols(shape, symbolic, sizes, progress)), sizes)
        except (ImportError, PrivateInterfaceError) as error:
            changed = str(error)
    return Proof("grid", symbolic, tuple(_by_grid(shape, symbolic, sizes, progress)), sizes, changed)


def _formulas(symbolic: SymbolicModel) -> dict[str, Formula]:
    """Formulas of the counts. In a proof, new and cached tokens are multiples of the tokens per compressed key, so no
    token waits for its key."""
    symbols, keys = symbolic.symbols, symbolic.at["S"]
    found: dict[Any, Any] = {}
    for kind, rate in RATES.items():
        length = next((group.axes[rate] for group in symbolic.ledger.groups if rate in group.axes), None)
        if length is not None:
            values = {"entries": keys / length, "waiting": 0, "any": 1}
            named = {symbols.get(COMPRESSED[what].get(kind, "")): value for what, value in values.items()}
            found |= {symbol: value for symbol, value in named.items() if symbol is not None}
    formulas = {name: formula(symbolic) for name, formula in COUNTS.items()}
    return {name: replace(one, expression=sympy.expand(one.expression.subs(found))) for name, one in formulas.items()}


def _at(formula: Formula, symbols: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any:
    """A formula with some sizes substituted. I defaults to J."""
    if "I" in symbols:
        sizes = {"I": sizes.get("J", symbols["J"]), **sizes}
    if ONE_BY_ONE in symbols:
        sizes = {ONE_BY_ONE: 0, **sizes}
    return formula.expression.subs({symbols[axis]: value for axis, value in sizes.items()})


def without_rope_scaling(part: Any) -> Any:
    """The part with plain RoPE: no count depends on RoPE scaling, and the reference does not support every kind. Slow
    rounds of normalization are also removed, because no count depends on them."""
    if isinstance(part, HyperConnection):
        return replace(part, rounds=1)
    rotary = getattr(part, "rotary", None)
    return part if rotary is None else replace(part, rotary=rotary._replace(scaling=None))


def _by_symbols(shape: Transformer, symbolic: SymbolicModel, sizes: Sizes, progress: Tick) -> Iterator[Proven]:
    """torch's count with symbols for all sizes, then with each size that may be smaller than 2 fixed at that value."""
    symbols, stacks, traces = symbolic.symbols, sizes.stacks, Traces(shape.mapped(without_rope_scaling), sizes)
    formulas, edges, tried = _formulas(symbolic), sizes.edges(), layers_tried(stacks)
    runs: list[Counted] = []
    for done, layers in enumerate(tried):
        progress("tracing with symbols", done, len(tried) + len(edges))
        blocks = dict(zip(stacks, layers, strict=True))
        law = 3 not in layers
        runs.append(traces.counted(blocks, first=not runs) if law else traces.at(blocks, sizes.once))
    assumed = what_was_assumed([guard for _, guards in runs for guard in guards])
    for name, formula in formulas.items():
        counts = dict(zip(tried, (counts[name] for counts, _ in runs), strict=True))
        once = {symbols[axis]: size for axis, size in sizes.once.items()}
        proven, linear = for_all_layers(counts, [symbols[axis] for axis in stacks], once)
        difference = sympy.expand(proven - _at(formula, symbols, {}))
        evidence = assumed + ("" if linear else f", not linear in {', '.join(stacks)}")
        yield Proven(name, formula, str(difference), evidence, difference == 0 and linear and assumed == NOTHING)
    one_each = dict.fromkeys(stacks, 1)
    for done, edge in enumerate(edges, start=len(tried)):
        progress("tracing with symbols", done, len(tried) + len(edges))
        some, guards = traces.at(one_each, edge.sizes)
        at = {**edge.sizes, **one_each}
        wrong = {name: sympy.expand(some[name] - _at(formula, symbols, at)) for name, formula in formulas.items()}
        wrong = {name: difference for name, difference in wrong.items() if difference != 0}
        words = "; ".join(f"{name}: {difference}" for name, difference in wrong.items()) or "0"
        yield Proven(f"all four at {edge.words}", None, words, what_was_assumed(guards), not wrong and not guards)


def for_all_layers(
    counts: Mapping[tuple[int, ...], Any], stacks: Sequence[Any], once: Mapping[Any, int] | None = None
) -> tuple[Any, bool]:
    """A count for any number of layers in each stack, from counts with one layer, and with two layers in one stack; and
    whether the count with three layers in all stacks, at the sizes of `once`, agrees."""
    ones = tuple(1 for _ in stacks)
    total = counts[ones]
    for i, axis in enumerate(stacks):
        total += (axis - 1) * (counts[(*ones[:i], 2, *ones[i + 1 :])] - counts[ones])
    linear = True
    for layers, count in counts.items():
        if 3 in layers:
            there = total.subs({**dict(zip(stacks, layers, strict=True)), **(once or {})})
            linear = linear and sympy.expand(there - count) == 0
    return total, linear


def what_was_assumed(guards: list[str]) -> str:
    return f"{len(guards)} assumptions" if guards else NOTHING


def _by_grid(shape: Transformer, symbolic: SymbolicModel, sizes: Sizes, progress: Tick) -> Iterator[Proven]:
    """Exact counts at every point of a grid with one more value per size than its degree.

    Two polynomials of these degrees that agree on the whole grid are the same polynomial.
    """
    from tfacct.reference import grid

    axis_names = [*sizes.axis_names, *sizes.stacks]
    symbols = {axis: symbolic.symbols[axis] for axis in axis_names}
    chunked = [symbolic.symbols[axis] for axis in (CHUNKS, ONE_BY_ONE) if axis in symbolic.symbols]
    formulas = _formulas(symbolic)
    values = {axis: sizes.values(axis) for axis in axis_names}
    models = prod(map(len, values.values()))
    if models > MOST_POINTS:
        problem = f"a grid of {models:,} models would take hours: {len(axis_names)} sizes vary"
        raise UsageError(problem, "prove it by symbols")
    chosen = [dict(zip(axis_names, point, strict=True)) for point in product(*values.values())]
    points = [
        grid.Point(
            with_sizes(shape, at.__getitem__, sizes.fixed),
            batch=at["B"],
            tokens=at["T"],
            context=at.get("C", 0) + at["T"],
            in_window=at.get("Cw"),
            source=at.get("J", 0),
        )
        for at in chosen
    ]
    open_sizes = {ONE_BY_ONE: symbolic.symbols[ONE_BY_ONE]} if ONE_BY_ONE in symbolic.symbols else {}
    expressions = {name: _at(formula, symbolic.symbols, open_sizes) for name, formula in formulas.items()}
    evaluate: dict[str, Callable[..., int]] = {
        name: sympy.lambdify([*symbols.values(), *chunked], expression) for name, expression in expressions.items()
    }
    counters: dict[str, tuple[str, str, Callable[[grid.Counted], int]]] = {
        "forward": ("forward", "fvcore", lambda found: FLOPS_PER_MULTIPLY_ADD * found.multiply_adds),
        "forward, by torch": ("forward", "FlopCounterMode", lambda found: found.forward),
        "backward": ("backward", "FlopCounterMode", lambda found: found.backward),
        "parameters": ("parameters", "numel", lambda found: found.parameters),
        "cached": ("cached", "numel", lambda found: found.cached),
    }
    """Statement → its formula, the counter, and the count."""
    wrong = dict.fromkeys(counters, 0)
    for done, (at, found) in enumerate(zip(chosen, grid.counts(points), strict=True)):
        if done % 48 == 0:
            progress("counting on a grid", done, len(points))
        step = at["T"], at.get("C", 0) + at["T"]
        more = [] if sizes.chunk is None else [chunks(*step, sizes.chunk), one_by_one(*step)][: len(chunked)]
        expected = {name: formula(*at.values(), *more) for name, formula in evaluate.items()}
        for what, (of, _, count) in counters.items():
            if count(found) != expected[of]:
                wrong[what] += 1
    for what, (of, by, _) in counters.items():
        bounded = all(sympy.degree(expressions[of], symbols[axis]) < len(values[axis]) for axis in axis_names)
        agreeing = f"0 at {len(points) - wrong[what]:,} of {len(points):,}"
        yield Proven(what, formulas[of], agreeing, by, bounded and not wrong[what])
