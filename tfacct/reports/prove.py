"""The proof: the count of the reference model with its sizes left open is the formula, as a polynomial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any, Literal

import sympy

from tfacct.architecture import Transformer
from tfacct.errors import UsageError
from tfacct.ledger import FLOPS_PER_MULTIPLY_ADD
from tfacct.passes import backward_flops, forward_flops
from tfacct.report import Column, Report, Row, Tick, unwatched
from tfacct.reports._witnesses import reference_rooms
from tfacct.subject import Subject
from tfacct.symbols import with_sizes
from tfacct.workload import Workload

By = Literal["symbols", "grid"]

LAYERS_TRIED = (1, 2, 3)
DEGREES = {"T": 2}
"""The highest power of each size in a count; 1 where none stands here. Each product of the model multiplies each of its
sizes once, and T stands twice in attention: as the queries, and in the keys S = C + T."""


@dataclass(frozen=True, slots=True)
class Proven:
    """One statement: two polynomials, and what was found of their difference."""

    what: str
    formula: Any
    difference: str
    evidence: str
    holds: bool


def prove(subject: Subject, *, by: By = "symbols", progress: Tick = unwatched) -> Report:
    """Prove that formula and model are the same polynomial, for all sizes. Needs torch and fvcore; sympy."""
    if by not in ("symbols", "grid"):
        raise UsageError(f"--by is symbols or grid, not {by!r}")
    reference_rooms("--prove")
    hints: list[str] = []
    shape = subject.architecture
    if len(shape.stacks) > 1:
        raise UsageError(f"{subject.name} has blocks of several kinds: its proof is not written yet")
    if by == "symbols":
        try:
            proven = list(_by_symbols(shape, progress))
        except (ImportError, AttributeError, TypeError) as error:
            hints.append(f"hint: torch's private symbolic shapes have changed ({error}): proven by grid instead")
            by = "grid"
    if by == "grid":
        proven = list(_by_grid(shape, progress))
    return _report(subject, by, proven, hints)


def _letters(shape: Transformer) -> dict[str, str]:
    """Every letter that is a size of its own, with its meaning, in the order of the parts."""
    parts = [shape.embed, *([shape.positions] if shape.positions else []), shape.final_norm, shape.head]
    parts += [part for _, part in shape.stacks[0].block.parts()]
    return {letter: part.legend[letter] for part in parts for letter in part.letters.values()}


def _symbols(shape: Transformer) -> dict[str, Any]:
    """A symbol for every letter, for L, and for C, the tokens already in the cache."""
    letters = ("B", "T", "C", "L", *_letters(shape))
    return {letter: sympy.Symbol(letter, positive=True, integer=True) for letter in letters}


def _formulas(shape: Transformer, symbols: Mapping[str, Any], tokens: Any) -> dict[str, Any]:
    """What the ledger says, with every size a symbol."""
    ledger = with_sizes(shape, lambda letter: symbols[letter], symbols["L"]).ledger()
    at = Workload(context=symbols["C"] + tokens, tokens=tokens, batch=symbols["B"]).axes()
    return {
        "forward": sympy.expand(forward_flops(ledger, at)),
        "backward": sympy.expand(backward_flops(ledger, at)),
        "parameters": sympy.expand(sum(ledger.parameters().values())),
        "cached": sympy.expand(sum(ledger.states(at).values())),
    }


def _by_symbols(shape: Transformer, progress: Tick) -> Iterator[Proven]:
    """Torch's own count with symbols for all sizes; the number of blocks by linearity."""
    from tfacct.reference.symbolic import polynomials

    symbols, letters = _symbols(shape), list(_letters(shape))
    steps = [(one, layers) for one in (False, True) for layers in LAYERS_TRIED]
    measured: dict[bool, list[tuple[dict[str, Any], list[str]]]] = {False: [], True: []}
    for done, (one, layers) in enumerate(steps):
        progress("tracing with symbols", done, len(steps))
        found = polynomials(partial(with_sizes, shape, layers=layers), letters, one_token=one)
        # The tracer's symbol for H is half a head.
        ours = {theirs: symbols[letter] / (2 if letter == "H" else 1) for letter, theirs in found.symbols.items()}
        counts = {name: sympy.expand(count.subs(ours, simultaneous=True)) for name, count in found.counts.items()}
        measured[one].append((counts, found.guards))
    for one, runs in measured.items():
        formulas = _formulas(shape, symbols, 1 if one else symbols["T"])
        guards = [guard for _, found in runs for guard in found]
        for name, formula in formulas.items():
            if one and name == "parameters":
                continue  # no token stands in it
            first, second, third = (counts[name] for counts, _ in runs)
            linear = sympy.expand(third - 2 * second + first) == 0
            whole = sympy.expand(first + (symbols["L"] - 1) * (second - first))
            difference = sympy.expand(whole - formula)
            evidence = f"{len(guards)} assumptions" if guards else "no assumption"
            evidence += "" if linear else ", not linear in L"
            holds = difference == 0 and linear and not guards
            what = f"{name} at T = 1" if one else name
            yield Proven(what, formula, str(difference), evidence, holds)


def _by_grid(shape: Transformer, progress: Tick) -> Iterator[Proven]:
    """Exact counts at every point of a grid with one more value per size than its degree.

    Two polynomials of these degrees that agree on the whole grid are the same polynomial.
    """
    from tfacct.reference import grid

    symbols = _symbols(shape)
    counted = [letter for letter in symbols if letter != "P"]
    formulas = _formulas(shape, symbols, symbols["T"])
    values = {letter: _values(letter, DEGREES.get(letter, 1)) for letter in counted}
    sizes = [dict(zip(counted, point, strict=True)) for point in product(*values.values())]
    rows = {"P": 5}  # any number of positions: it is in no product
    points = [
        grid.Point(with_sizes(shape, {**rows, **at}.__getitem__, at["L"]), at["B"], at["T"], at["C"] + at["T"])
        for at in sizes
    ]
    wrong = {"forward": 0, "forward, by torch": 0, "backward": 0}
    evaluate = {name: sympy.lambdify([symbols[x] for x in counted], formulas[name]) for name in ("forward", "backward")}
    for done, (at, found) in enumerate(zip(sizes, grid.counts(points), strict=True)):
        if done % 48 == 0:
            progress("counting on a grid", done, len(points))
        forward, backward = (evaluate[name](*(at[letter] for letter in counted)) for name in ("forward", "backward"))
        wrong["forward"] += FLOPS_PER_MULTIPLY_ADD * found.multiply_adds != forward
        wrong["forward, by torch"] += found.forward != forward
        wrong["backward"] += found.backward != backward
    for what, points_wrong in wrong.items():
        formula = formulas[what.split(",")[0]]
        bounded = all(
            sympy.degree(formula, symbols[letter]) <= DEGREES.get(letter, 1) for letter in counted if letter != "C"
        )
        size = prod(len(v) for v in values.values())
        yield Proven(
            what,
            formula,
            f"0 at {size - points_wrong:,} of {size:,}",
            "fvcore" if what == "forward" else "FlopCounterMode",
            bounded and not points_wrong,
        )


def _values(letter: str, degree: int) -> list[int]:
    """degree + 1 small sizes; a head is even, because rotary positions turn it in halves."""
    first, step = (2, 2) if letter == "H" else (1, 1) if letter in ("L", "G") else (2, 1)
    return [first + step * i for i in range(degree + 1)]


def _report(subject: Subject, by: By, proven: list[Proven], hints: list[str]) -> Report:
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
    legend = {
        "B": "batch",
        "T": "new tokens",
        "C": "tokens in the cache",
        "L": "blocks",
        **_letters(subject.architecture),
    }
    formulas = {p.what: p.formula for p in proven if p.what in ("forward", "backward", "parameters", "cached")}
    return Report(
        command="verify",
        title=f"{subject.family}: the formula is what the model does, for all sizes",
        columns=columns,
        sections=(tuple(rows),),
        notes=(
            *(f"{name} = {spoken(formula)}" for name, formula in formulas.items()),
            ", ".join(f"{letter} {meaning}" for letter, meaning in legend.items()),
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
                        "formula": str(p.formula),
                        "difference": p.difference,
                        "evidence": p.evidence,
                        "proven": p.holds,
                    }
                    for p in proven
                ],
            },
        ),
        convention="2 FLOPs per multiply-add; products only; full T x S attention, S = C + T; all logits",
        agrees=all(p.holds for p in proven),
    )


def spoken(formula: Any) -> str:
    """A polynomial as people write it: factored, with a dot for times."""
    return str(sympy.factor(formula)).replace("**", "^").replace("*", "·")


def _means(subject: Subject, by: By) -> str:
    like = f"The model is {subject.name}'s kind: its biases and ties, any sizes."
    if by == "symbols":
        return (
            f"{like} Every size was a symbol, so each count is itself a polynomial; it was compared with the formula"
            " symbol by symbol, and torch assumed nothing about the sizes, so it holds for all of at least 2 (heads"
            " even). T = 1 is a run of its own; the number of blocks is by linearity at 1, 2 and 3."
        )
    return (
        f"{like} Counted at every point of a grid with two values for each size and three for T: two polynomials of at"
        " most that degree (1; 2 in T) that agree there are the same. That each count is such a polynomial is read off"
        " the model: it multiplies each size of a product once."
    )
