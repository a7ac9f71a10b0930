"""Formulas of one rank: the same lines, divided by the numbers of ranks that divide a letter of theirs.

Ranks of `tp` divide heads, widths and the vocabulary, those of `ep` experts, stages of `pp` blocks, parts of `cp` the
tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Any

from tfacct.algebra.factored import Factored
from tfacct.algebra.symbols import SymbolicModel
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS, Size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import ACTIVE, Matmul
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.checks import check_sequence
from tfacct.parallel.mesh import Mesh, divisors, lives, padded, place, replicated
from tfacct.reports import ranks as one_rank
from tfacct.reports.mesh import check_divided, check_ruled, check_sizes, gathers_heads
from tfacct.reports.one_rank import on_ranks
from tfacct.reports.pipes import check_axes
from tfacct.reports.ranks import IDLE

if TYPE_CHECKING:
    from tfacct.reports.formula import Line

By = tuple[str, ...]
"""Numbers of ranks, or letters for them, by which a count is divided: none, one or several."""
AXES = {"tp": "ranks", "ep": "ranks that divide experts", "pp": "stages", "cp": "parts of a sequence"}
"""Axes of a mesh that are written into a formula, and what their numbers are of."""
LETTER = 2
"""Ranks for which a letter is taken where a model is asked whether any number divides it."""


@record
class Divided:
    """What is written of a sum whose parts ranks divide."""

    parts: tuple[tuple[Factored, By], ...]

    @property
    def text(self) -> str:
        """Text as people write it: `(2·B·T·D·V) / t + B·T·D`."""
        return self._joined("text", "({}) / {}", "·", "({})")

    @property
    def code(self) -> str:
        """Text as Python and sympy read it."""
        return self._joined("code", "({})/{}", "*", "({})")

    @property
    def latex(self) -> str:
        """Text for LaTeX's math mode."""
        return self._joined("latex", "\\frac{{{}}}{{{}}}", " ", "{}")

    def _joined(self, style: str, fraction: str, times: str, several: str) -> str:
        terms = []
        for part, by in sorted(self.parts, key=lambda one: not one[1]):  # what is whole stands behind
            said, number = str(getattr(part, style)), prod(int(one) for one in by if one.isdigit())
            under = [*([str(number)] if number > 1 else []), *(one for one in by if not one.isdigit())]
            below = times.join(under)
            terms.append(fraction.format(said, below if len(under) == 1 else several.format(below)) if by else said)
        return " + ".join(terms)


def read(asked: Mapping[str, str | None]) -> dict[str, str]:
    """Numbers of ranks, or letters for them, by the axis of their mesh. Raises UsageError."""
    given = {axis: text for axis in AXES if (text := asked.get(axis)) not in (None, "1")}
    for axis, text in given.items():
        assert text is not None
        if text.isascii() and text.isdigit():
            if int(text) < 1:
                raise UsageError(f"{option(axis)} must be at least 1, not {int(text)}")
        elif not (text.isascii() and text.isalpha() and text.islower() and len(text) == 1):
            said = f"{option(axis)} is a number of {AXES[axis]} or a small letter for it, not {text!r}"
            raise UsageError(said, f"for example {axis[0]}")
    letters = [text for text in given.values() if text and not text.isdigit()]
    if len(letters) > len({*letters}):
        raise UsageError(f"one letter stands for two axes: {', '.join(letters)}", "give each its own")
    return {axis: text for axis, text in given.items() if text is not None}


def along_tokens(axes: Mapping[str, str], sp: bool) -> list[str]:
    """What is said of ranks that divide the stream's tokens too, where nothing is counted of them. Raises
    UsageError."""
    check_sequence(Mesh(1 if "tp" not in axes else LETTER, sp))
    return [IDLE["sp"]] if sp else []


def check(subject: LoadedModel, axes: Mapping[str, str], of: str, work: Workload | None) -> None:
    """Raises TfacctError for a model that such ranks do not divide evenly. `work`: None of a family."""
    numbers = {axis: int(text) if text.isdigit() else None for axis, text in axes.items()}
    if "ep" in axes:
        _check_ep(subject, numbers, work)
    if "tp" in axes:
        _check_tp(subject, numbers["tp"], numbers.get("ep", 1) or LETTER)
    if "pp" in axes:
        check_axes(subject, Mesh(pp=numbers["pp"] or 2))
        kinds = [group for group in subject.ledger.groups if group.numbers]
        if len(kinds) > 1:
            said = f"{subject.name}: stages of blocks of several kinds are not written in letters"
            raise ConfigError(said, f"`tfacct flops`, `params` and `kv` count them with {option('pp')}")
        if len(kinds[0].numbers) % (numbers["pp"] or 1):
            sizes = ", ".join(map(str, divisors([len(kinds[0].numbers)])))
            said = f"{subject.name}: {option('pp', numbers['pp'])} does not divide L = {len(kinds[0].numbers):,} evenly"
            raise UsageError(said, f"sizes that do: {sizes}")
    if "cp" in axes:
        if of == "params":
            raise UsageError(f"{option('cp')} divides no parameter: each of its ranks has the same", "leave it out")
        mesh = Mesh(cp=numbers["cp"] or 2)
        if work is None or numbers["cp"] is None:
            work = Workload(2 * mesh.pieces, 2 * mesh.pieces)
        if of == "kv":
            one_rank.kept(subject, mesh, work)
        else:
            from tfacct.reports.computed import check_parts

            check_parts(subject, mesh, work)


def _check_ep(subject: LoadedModel, numbers: Mapping[str, int | None], work: Workload | None) -> None:
    """Raises TfacctError for experts that are not whole on a rank, and for pairs of token and expert that the ranks of
    a batch do not share evenly."""
    tp, ep = numbers.get("tp", 1), numbers["ep"]
    one_rank.checked(Mesh(ep=ep or LETTER, cp=LETTER if "cp" in numbers else 1))
    if not any(ACTIVE in group.axes for group in subject.ledger.groups):
        raise ConfigError(f"{subject.name} has no experts for {option('ep')} to divide", f"leave {option('ep')} out")
    check_ruled(subject, Mesh(ep=ep or LETTER), train=False)
    if ep is not None:
        on_ranks([subject], tp or 1, ep)
    active = [group.axes[ACTIVE] for group in subject.ledger.groups if ACTIVE in group.axes]
    uneven = [n for n in active if work is not None and tp and work.batch * work.tokens * n % tp]
    if work is not None and uneven:
        said = f"{option('tp', tp)} does not divide {work.batch * work.tokens * uneven[0]:,} pairs of token and expert"
        raise UsageError(f"{subject.name}: {said} evenly", "`tfacct flops` counts the fullest rank")


def _check_tp(subject: LoadedModel, number: int | None, ep: int) -> None:
    if gathers_heads(subject):
        said = f"{subject.name}: {option('tp')} gathers queries and keys for a norm over all heads together, which is"
        raise ConfigError(f"{said} not written in letters", "`tfacct flops`, `params` and `kv` count it")
    if number is None:
        check_ruled(subject, Mesh(2), train=False)
        return
    mesh = Mesh(number, ep=ep)
    if ep > 1:
        check_sizes(subject, mesh, {})
    else:
        check_divided(subject, mesh)
    uneven = [("K", heads) for heads in replicated(subject.ledger, mesh)] + padded(subject.ledger, mesh)
    if uneven:
        named = ", ".join(f"{letter} = {whole:,}" for letter, whole in uneven)
        raise UsageError(f"{subject.name}: {option('tp', number)} does not divide {named} evenly")


def on_rank(lines: Sequence[Line], symbolic: SymbolicModel, axes: Mapping[str, str], of: str) -> list[Line]:
    """The lines of one rank."""
    weights = _weights(symbolic, axes)
    numbers = all(text.isdigit() for text in axes.values())
    banks = banked(symbolic.ledger)

    def divided(line: Line) -> Line:
        by = divides(line.path, AXIS.findall(line.spec), axes, of, line.path in banks)
        shares = prod(map(int, by)) if numbers else 1
        values = {key: value // shares for key, value in line.values.items()} if numbers else {}
        if not by and line.weights is None:
            return replace(line, values=values)
        assert isinstance(line.count, Factored)
        own = None if line.weights is None else weights[line.path]
        return replace(line, count=Divided(((line.count, by),)) if by else line.count, weights=own, values=values)

    return [divided(line) for line in lines]


def banked(ledger: Ledger) -> frozenset[str]:
    """Paths of experts, and of their weights."""
    lines = [line for group in ledger.groups for line in group.lines if isinstance(line, Matmul) and line.bank]
    return frozenset(path for line in lines for path in (line.path, *(one.path for one in line.parameters())))


def divides(path: str, letters: Iterable[str], axes: Mapping[str, str], of: str, bank: bool = False) -> By:
    """Numbers that divide the count of a line with these letters; `bank`: of experts, which `ep` leaves whole. Of these
    the ranks of a batch share the tokens."""
    there = {*letters}
    tokens = {"S"} if of == "kv" else {"T", "O"} if of != "params" else set()
    whole = bank and "ep" in axes and of == "params"
    so = {
        "tp": not whole and any(map(lives, there)),
        "ep": whole,
        "pp": paths.repeated(path),
        "cp": not there.isdisjoint(tokens),
    }
    return tuple(text for axis, text in axes.items() if so[axis])


def _weights(symbolic: SymbolicModel, axes: Mapping[str, str]) -> dict[str, Divided]:
    """The parameters of each module. The bias of what is summed over a divided letter is whole."""
    known = {path: one for _, weights in symbolic.ledger.weights for path, one in weights.items()}
    found = {}
    for module, tensors in groupby(symbolic.ledger.parameters().items(), key=lambda one: paths.module_of(one[0])):
        by: dict[By, list[Any]] = {}
        for path, count in tensors:
            one = known[path]
            by.setdefault(divides(path, one.axes, axes, "params", one.bank), []).append(count)
        found[module] = Divided(tuple((symbolic.formula(some).written, how) for how, some in by.items()))
    return found


def total_of(
    subject: LoadedModel, symbolic: SymbolicModel, axes: Mapping[str, str], counts: Mapping[str, Size], of: str
) -> tuple[Divided, list[str]]:
    """The total of one rank, of stages the one that has most; and what is said of how ranks divide it."""
    specs, banks = _letters(symbolic, of), banked(symbolic.ledger)
    ends = _ends(subject) if "pp" in axes else ({*counts}, {*counts})
    weigh = subject.ledger.parameters() if of == "params" else dict.fromkeys(counts, 1)
    first, last = (sum(weigh[path] for path in end if path in counts) for end in ends)
    here = ends[0] if first > last else ends[1]
    by: dict[By, list[Any]] = {}
    for path, count in counts.items():
        if paths.repeated(path) or path in here:
            by.setdefault(divides(path, specs[path], axes, of, path in banks), []).append(count)
    total = Divided(tuple((symbolic.formula(some).written, how) for how, some in by.items()))
    counted = {path: letters for path, letters in specs.items() if path in counts}
    if "ep" in axes:
        counted = {path: letters for path, letters in counted.items() if path not in banks}
    return total, [*_notes(counted, axes, of), *_of_experts(axes, of), *_of_stages(axes, first, last)]


def _letters(symbolic: SymbolicModel, of: str) -> dict[str, set[str]]:
    """The letters of everything that is counted, by path."""
    found: dict[str, set[str]] = {}
    for group in symbolic.ledger.groups:
        for line in group.lines:
            found[line.path] = {*AXIS.findall(getattr(line, "spec", ""))}
            if of == "params":
                found |= {one.path: {*one.axes} for one in line.parameters()}
    return found


def _ends(subject: LoadedModel) -> tuple[set[str], set[str]]:
    """Paths of what stands in front of the blocks, and behind them; of a tied table in both."""
    found: tuple[set[str], set[str]] = (set(), set())
    behind = False
    for group in subject.ledger.groups:
        behind |= bool(group.numbers)
        for line in group.lines if not group.numbers else ():
            found[behind].update({line.path, *(one.path for one in line.parameters())})
    return found


def _notes(specs: Mapping[str, set[str]], axes: Mapping[str, str], of: str) -> list[str]:
    """Which letters are divided."""
    there = set().union(*specs.values())
    said = []
    if "tp" in axes:
        named, tp = " ".join(sorted(filter(lives, there), key=place)), axes["tp"]
        said.append(f"{tp} ranks divide {named}: on one rank, a line with any of these letters is divided once.")
    if "cp" in axes:
        cp, letter = axes["cp"], "S" if of == "kv" else "T"
        said.append(f"{cp} parts of a sequence divide {letter}.")
    return said


def _of_experts(axes: Mapping[str, str], of: str) -> list[str]:
    """What is said of experts that ranks divide."""
    if "ep" not in axes:
        return []
    if of == "kv":
        return [IDLE["ep"]]
    ep = axes["ep"]
    said = f"{ep} ranks divide E; each expert is whole."
    if of == "params":
        return [said]
    tokens = "Tokens are spread evenly over the experts"
    share = f", so {axes['tp']} divides what they compute" if "tp" in axes else "; each rank has a batch of its own"
    return [f"{said} {tokens}{share}."]


def _of_stages(axes: Mapping[str, str], first: Size, last: Size) -> list[str]:
    if "pp" not in axes:
        return []
    pp = axes["pp"]
    many = f"{pp} stages divide" if pp.isdigit() else f"{pp} is the number of stages, which divide"
    where = "first, with what stands in front of them" if first > last else "last, with what stands behind them"
    return [f"{many} the blocks. The total is that of {f'the {where}' if first or last else 'each'}."]


def letters_of(axes: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What the letters stand for."""
    return {text: {"meaning": AXES[axis]} for axis, text in axes.items() if not text.isdigit()}
