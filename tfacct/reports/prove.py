"""The proof: the count of the reference model with its sizes left open is the formula, as a polynomial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Literal

import sympy

from tfacct.architecture import Transformer
from tfacct.blocks import MixerBlock
from tfacct.errors import UsageError
from tfacct.lines import FLOPS_PER_MULTIPLY_ADD, WINDOW
from tfacct.report import Column, Report, Row, Tick, unwatched
from tfacct.reports._witnesses import reference_rooms
from tfacct.subject import Subject
from tfacct.symbols import Formula, Opened, block_letters, opened, size_letters, with_sizes

By = Literal["symbols", "grid"]

LAYERS_TRIED = (1, 2, 3)
TOKENS_TRIED = (1, 2, 3)
"""New tokens of a model with mixers, whose recurrence runs over them: they are no symbol there."""
EDGES: tuple[dict[str, int], ...] = (
    {"T": 1},
    {"C": 0},
    {"B": 1},
    {"K": 1},
    {"G": 1},
    {"N": 1},
    {"A": 1},
    {"Kc": 1},
    {"Ns": 1},
    {"Rt": 1},
    {"B": 1, "C": 0},
    {"J": 1},
    {"I": 0},
)
"""What a symbol, at least 2, leaves out: one token, an empty cache, one sequence, MQA, MHA, one head, one expert for
each token, a convolution of one token, a state and a rank of one number, a plain prefill, a source of one token, a step
behind the source. Each where the model has these letters as sizes."""
MOST_POINTS = 20_000
"""Models of a grid beyond which it would take hours."""
NOTHING = "no assumption"
DEGREES = {"T": 2, "J": 2}
"""The highest power of each size in a count; 1 where none stands here. Each product of the model multiplies each of its
sizes once, and T stands twice in attention: as the queries, and in the keys S = C + T; so does the source in its
encoder."""


@dataclass(frozen=True, slots=True)
class Proven:
    """One statement: two polynomials, and what was found of their difference."""

    what: str
    formula: Formula | None
    difference: str
    evidence: str
    holds: bool


def prove(subject: Subject, *, by: By = "symbols", progress: Tick = unwatched) -> Report:
    """Prove that formula and model are the same polynomial, for all sizes. Needs torch and fvcore; sympy."""
    if by not in ("symbols", "grid"):
        raise UsageError(f"--by is symbols or grid, not {by!r}")
    reference_rooms("--prove")
    from tfacct.reference.counting import PrivateInterfaceError

    hints: list[str] = []
    shape = subject.architecture
    symbolic = opened(shape, cached=True)
    if by == "symbols":
        try:
            proven = list(_by_symbols(shape, symbolic, progress))
        except (ImportError, PrivateInterfaceError) as error:
            hints.append(f"hint: torch's private symbolic shapes have changed ({error}): proven by grid instead")
            by = "grid"
    if by == "grid":
        proven = list(_by_grid(shape, symbolic, progress))
    return _report(subject, symbolic, by, proven, hints)


def _formulas(symbolic: Opened) -> dict[str, Formula]:
    """What the ledger says, with every size a symbol."""
    return {
        "forward": symbolic.flops(lambda product: product.forward),
        "backward": symbolic.flops(lambda product: product.backward),
        "parameters": symbolic.parameters(),
        "cached": symbolic.cached(),
    }


def _letters(shape: Transformer, symbolic: Opened) -> list[str]:
    """The sizes that are left open: the workload's and the parts'. A window is none, Cw old tokens are left of it, nor
    is I: the whole source is read, or none of it."""
    own = size_letters(shape)
    there = [letter for letter in ("B", "T", "C", "Cw", "J") if letter in symbolic.symbols]
    return [*there, *(letter for letter in own if letter != WINDOW)]


def _at(formula: Formula, symbols: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any:
    """A formula with some sizes put in. Where none is given for I, it is J."""
    if "I" in symbols:
        sizes = {"I": sizes.get("J", symbols["J"]), **sizes}
    return formula.expression.subs({symbols[letter]: value for letter, value in sizes.items()})


def _factors(letters: Sequence[str], fixed: Mapping[str, int]) -> dict[str, int | str]:
    """Sizes that come in multiples: what rotary positions turn, in pairs, and tokens, which go to E experts evenly."""
    factors: dict[str, int | str] = {"Hr" if "Hr" in letters else "H": 2}
    if "E" in letters:
        factors |= dict.fromkeys(("T", "J") if "B" in fixed else ("B",), "E")
    return factors


def _by_symbols(shape: Transformer, symbolic: Opened, progress: Tick) -> Iterator[Proven]:
    """Torch's own count with symbols for all sizes, then with each size that may be smaller than 2 fixed there."""
    from tfacct.reference.symbolic import polynomials

    symbols, letters, stacks = symbolic.symbols, _letters(shape, symbolic), block_letters(shape)
    open_ = {*letters, *({"I"} if "I" in symbols else ())} - ({"T"} if _mixes(shape) else set())
    edges = [edge | _no_window(edge, letters) for edge in EDGES if edge.keys() <= open_]
    rests = {"H": "Hr"} if {"H", "Hr"} <= set(letters) else {}  # a head is what is turned of it, and the rest
    tried = _layers_tried(stacks)
    steps = len(tried) + len(edges)

    def counted(done: int, layers: Mapping[str, int], fixed: Mapping[str, int]) -> tuple[dict[str, Any], list[str]]:
        progress("tracing with symbols", done, steps)
        if "T" in open_:
            return at_once(layers, fixed)
        return _interpolated(symbols["T"], [at_once(layers, {**fixed, "T": tokens}) for tokens in TOKENS_TRIED])

    def at_once(layers: Mapping[str, int], fixed: Mapping[str, int]) -> tuple[dict[str, Any], list[str]]:
        factors = _factors(letters, fixed)

        def open_shape(size: Callable[[str], Any]) -> Transformer:
            return with_sizes(shape, lambda letter: layers[letter] if letter in layers else size(letter), _KEPT)

        found = polynomials(open_shape, letters, fixed, factors, rests)
        ours = {}
        for letter, theirs in found.symbols.items():
            factor = factors.get(letter, 1)
            rest = symbols[letter] - (symbols[rests[letter]] if letter in rests else 0)
            ours[theirs] = rest / (symbols[factor] if isinstance(factor, str) else factor)
        return {name: sympy.expand(c.subs(ours, simultaneous=True)) for name, c in found.counts.items()}, found.guards

    runs = [counted(done, dict(zip(stacks, layers, strict=True)), {}) for done, layers in enumerate(tried)]
    formulas = _formulas(symbolic)
    assumed = _assumed([guard for _, guards in runs for guard in guards])
    for name, formula in formulas.items():
        counts = dict(zip(tried, (counts[name] for counts, _ in runs), strict=True))
        whole, linear = _for_all_layers(counts, [symbols[letter] for letter in stacks])
        difference = sympy.expand(whole - _at(formula, symbols, {}))
        evidence = assumed + ("" if linear else f", not linear in {', '.join(stacks)}")
        yield Proven(name, formula, str(difference), evidence, difference == 0 and linear and assumed == NOTHING)
    one_each = dict.fromkeys(stacks, 1)
    for done, fixed in enumerate(edges, start=len(tried)):
        some, guards = counted(done, one_each, fixed)
        at = {**fixed, **one_each}
        wrong = {name: sympy.expand(some[name] - _at(formula, symbols, at)) for name, formula in formulas.items()}
        wrong = {name: difference for name, difference in wrong.items() if difference != 0}
        what = "all four at " + ", ".join(f"{letter} = {value}" for letter, value in fixed.items())
        said = "; ".join(f"{name}: {difference}" for name, difference in wrong.items()) or "0"
        yield Proven(what, None, said, _assumed(guards), not wrong and not guards)


_KEPT = frozenset({WINDOW})


def _mixes(shape: Transformer) -> bool:
    return any(isinstance(stack.block, MixerBlock) for stack in shape.stacks)


def _interpolated(tokens: Any, runs: Sequence[tuple[dict[str, Any], list[str]]]) -> tuple[dict[str, Any], list[str]]:
    """Counts for any number of new tokens: the straight line through the first two; that the third lies on it, is an
    assumption where it does not."""
    (first, _), (second, _), (third, _) = runs
    guards = [guard for _, own in runs for guard in own]
    for name in first:
        bend = sympy.expand(third[name] - 2 * second[name] + first[name])
        guards += [f"{name} is linear in T"] if bend != 0 else []
    line = {name: sympy.expand(first[name] + (tokens - 1) * (second[name] - first[name])) for name in first}
    return line, guards


def _no_window(edge: Mapping[str, int], letters: Sequence[str]) -> dict[str, int]:
    """With an empty cache a window sees nothing of it."""
    return {"Cw": 0} if "Cw" in letters and edge.get("C") == 0 else {}


def _layers_tried(stacks: Sequence[str]) -> list[tuple[int, ...]]:
    """Numbers of blocks: one in each stack, then 2 and 3 in each by itself, then 2 in all."""
    ones = tuple(1 for _ in stacks)
    alone = [(*ones[:i], count, *ones[i + 1 :]) for i in range(len(stacks)) for count in LAYERS_TRIED[1:]]
    together = [tuple(2 for _ in stacks)] if len(stacks) > 1 else []
    return [ones, *alone, *together]


def _for_all_layers(counts: Mapping[tuple[int, ...], Any], stacks: Sequence[Any]) -> tuple[Any, bool]:
    """A count for any number of blocks in each stack, and whether it really grew in a straight line."""
    ones = tuple(1 for _ in stacks)
    first, whole, linear, both = counts[ones], counts[ones], True, counts[ones]
    for i, letter in enumerate(stacks):
        second, third = (counts[(*ones[:i], count, *ones[i + 1 :])] for count in LAYERS_TRIED[1:])
        linear = linear and sympy.expand(third - 2 * second + first) == 0
        whole += (letter - 1) * (second - first)
        both += second - first
    twice = counts[tuple(2 for _ in stacks)]
    return whole, bool(linear and sympy.expand(twice - both) == 0)


def _assumed(guards: list[str]) -> str:
    return f"{len(guards)} assumptions" if guards else NOTHING


def _by_grid(shape: Transformer, symbolic: Opened, progress: Tick) -> Iterator[Proven]:
    """Exact counts at every point of a grid with one more value per size than its degree.

    Two polynomials of these degrees that agree on the whole grid are the same polynomial.
    """
    from tfacct.reference import grid

    stacks = block_letters(shape)
    letters = [*_letters(shape, symbolic), *stacks]
    symbols = {letter: symbolic.symbols[letter] for letter in letters}
    formulas = _formulas(symbolic)
    values = {letter: _values(letter, letters) for letter in letters}
    if prod(map(len, values.values())) > MOST_POINTS:
        raise UsageError(
            f"a grid of {prod(map(len, values.values())):,} models would take hours: {len(letters)} sizes are open",
            "prove it by symbols",
        )
    sizes = [dict(zip(letters, point, strict=True)) for point in product(*values.values())]
    points = [
        grid.Point(
            with_sizes(shape, at.__getitem__, _KEPT),
            batch=at["B"],
            tokens=at["T"],
            context=at.get("C", 0) + at["T"],
            in_window=at.get("Cw"),
            source=at.get("J", 0),
        )
        for at in sizes
    ]
    said_by = {name: _at(formula, symbolic.symbols, {}) for name, formula in formulas.items()}
    evaluate: dict[str, Callable[..., int]] = {
        name: sympy.lambdify(list(symbols.values()), expression) for name, expression in said_by.items()
    }
    witnesses: dict[str, Callable[[grid.Counted], int]] = {
        "forward": lambda found: FLOPS_PER_MULTIPLY_ADD * found.multiply_adds,
        "forward, by torch": lambda found: found.forward,
        "backward": lambda found: found.backward,
        "parameters": lambda found: found.parameters,
        "cached": lambda found: found.cached,
    }
    wrong = dict.fromkeys(witnesses, 0)
    for done, (at, found) in enumerate(zip(sizes, grid.counts(points), strict=True)):
        if done % 48 == 0:
            progress("counting on a grid", done, len(points))
        expected = {name: formula(*at.values()) for name, formula in evaluate.items()}
        for what, said in witnesses.items():
            wrong[what] += said(found) != expected[what.split(",")[0]]
    for what, points_wrong in wrong.items():
        formula = formulas[what.split(",")[0]]
        bounded = all(
            sympy.degree(said_by[what.split(",")[0]], symbols[letter]) < len(values[letter])
            for letter in letters
            if letter != "P"
        )
        agreeing = f"0 at {len(points) - points_wrong:,} of {len(points):,}"
        by = {"forward": "fvcore", "parameters": "numel", "cached": "numel"}.get(what, "FlopCounterMode")
        yield Proven(what, formula, agreeing, by, bounded and not points_wrong)


def _values(letter: str, letters: Sequence[str]) -> list[int]:
    """The smallest sizes there are, one more than the degree. The rows of a position table multiply nothing."""
    # What rotary positions turn is even and no more than a head, and experts are as many as a token is sent to.
    head = (4, 2) if "Hr" in letters else (2, 2)
    first, step = {"C": (0, 1), "Cw": (0, 1), "H": head, "Hr": (2, 2), "E": (2, 1)}.get(letter, (1, 1))
    count = 1 if letter == "P" else DEGREES.get(letter, 1) + 1
    return [first + step * i for i in range(count)]


def _report(subject: Subject, symbolic: Opened, by: By, proven: list[Proven], hints: list[str]) -> Report:
    columns = (
        Column("what", "count"),
        Column("difference", "model − formula"),
        Column("evidence", "assumptions" if by == "symbols" else "counted by"),
        Column("verdict", ""),
    )
    rows: list[Row] = [
        {
            "what": p.what,
            "difference": p.difference,
            "evidence": p.evidence,
            "verdict": "proven" if p.holds else "NOT PROVEN",
        }
        for p in proven
    ]
    legend = {letter: symbolic.legend[letter] for letter in symbolic.symbols}
    pairs = " full T x S attention, S = C + T;" if subject.architecture.attention is not None else ""
    formulas = {p.what: p.formula for p in proven if p.formula is not None and "," not in p.what}
    return Report(
        command="verify",
        title=f"{subject.family}: the formula is what the model does",
        columns=columns,
        sections=(tuple(rows),),
        notes=(
            *(f"{name} = {formula.written.text}" for name, formula in formulas.items()),
            "; ".join(f"{letter} {meaning}" for letter, meaning in legend.items()),
            _means(subject, by),
        ),
        hints=tuple(hints),
        models=(
            {
                "model": subject.name,
                "family": subject.family,
                "by": by,
                "proven": all(p.holds for p in proven),
                "legend": legend,
                "statements": [
                    {
                        "what": p.what,
                        "formula": None if p.formula is None else str(p.formula.expression),
                        "difference": p.difference,
                        "evidence": p.evidence,
                        "proven": p.holds,
                    }
                    for p in proven
                ],
            },
        ),
        convention=f"2 FLOPs per multiply-add; products only;{pairs} all logits",
        agrees=all(p.holds for p in proven),
    )


def _means(subject: Subject, by: By) -> str:
    like = f"The model is {subject.name}'s kind: its biases and ties, any sizes."
    loop = " The blocks are one loop over the same code, so a count is linear in L; that was checked at 1, 2 and 3."
    if by == "symbols" and _mixes(subject.architecture):
        return (
            f"{like} Every size but T was a symbol, so each count is itself a polynomial in them; T was proven by"
            " interpolation: a mixer's recurrence runs over the tokens, so they were 1, 2 and 3, the third on the line"
            " through the first two. That it is a line is read off the model: every product multiplies T once. Compared"
            " with the formula symbol by symbol, torch assumed nothing: it holds for all sizes of at least 2. What a"
            f" symbol leaves out has runs of its own, with one block.{loop}"
        )
    if by == "symbols":
        return (
            f"{like} Every size was a symbol, so each count is itself a polynomial; it was compared with the formula"
            " symbol by symbol, and torch assumed nothing: it holds for all sizes of at least 2 (heads even). What a"
            f" symbol leaves out has runs of its own, with one block.{loop}"
        )
    return (
        f"{like} Counted at every point of a grid with two values for each size and three for T, the smallest there"
        " are: two polynomials of at most that degree (1; 2 in T) that agree there are the same. That each count is"
        " such a polynomial is read off the model: it multiplies each size of a product once."
    )
