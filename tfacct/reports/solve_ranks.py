"""The fewest ranks that bring a number down to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from tfacct.accounts.metrics import Point
from tfacct.algebra.equations import Equation
from tfacct.algebra.solving import Solution
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.lines import EXPERTS
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh, divisors
from tfacct.parallel.stages import blocks_in
from tfacct.parallel.verified import TORCH_PLAN
from tfacct.reports.counting import Counting
from tfacct.reports.mesh import rows_divisors
from tfacct.reports.ranks import on_the_way
from tfacct.reports.unruled import unruled

RANKS = ("tp", "fsdp", "pp", "ep")
"""Unknowns that are numbers of ranks."""
MOST = 2**16
"""Ranks of `fsdp` beyond which nobody asks."""


class Fewest(NamedTuple):
    """The fewest ranks, a point by their number, and which numbers were tried."""

    found: Solution
    at: Callable[[Any], Point]
    how: list[str]


def smallest(
    subject: LoadedModel, unknown: str, equation: Equation, point: Callable[[Counting], Point], terms: Counting
) -> Fewest:
    """The fewest ranks with which the left side of an equation is no larger than the right one. `point`: what the
    metrics read under some terms. Raises UsageError where no number of ranks is enough."""
    mesh = terms.mesh or Mesh()
    if getattr(mesh, unknown) != 1:
        raise UsageError(f"{option('unknown', unknown)} finds the ranks: leave {option(unknown)} out")
    known: dict[int, Point] = {}

    def at(count: int) -> Point:
        if count not in known:
            own = _with(mesh, unknown, count)
            known[count] = point(replace(terms, mesh=None if own == Mesh() else own))
        return known[count]

    def holds(count: int) -> bool:
        return bool(equation.difference(at(count)) <= 0)

    heads = max((part.heads for part in subject.architecture.attentions), default=1)
    there = [axis for axis in ("tp", "pp", "cp") if axis == unknown or getattr(mesh, axis) > 1]
    powers = [2**power for power in range(MOST.bit_length())]
    if unknown == "ep":
        among = _of_experts(subject, mesh)
    elif unknown == "pp":
        among = [*range(1, blocks_in(subject.ledger) + 1)]
    else:
        among = divisors([heads]) if unknown == "tp" else _even(subject, mesh) or powers
    tried: list[int] = []
    refused: list[int] = []
    why: TfacctError | None = None
    for count in among:
        try:
            fits = holds(count)
        except TfacctError as error:
            why = error
            refused.append(count)
            continue
        if fits:
            answer, before = _between(tried, count, holds) if among is powers else (count, tried[-1:])
            how = [*_how(unknown, among, refused), *on_the_way(equation.left.text, *there)]
            return Fewest(Solution(answer, before[0] if before else None, False), at, how)
        tried.append(count)
    if tried in ([], [1]) and why is not None:
        raise why
    ends = f"{equation.left.text} is still above {equation.right.text} with {option(unknown, tried[-1])}"
    more = "; more ranks are not counted" if refused and refused[-1] > tried[-1] else ""
    raise UsageError(f"{subject.name}: no number of ranks is enough: {ends}{more}", "divide it along another axis too")


def _of_experts(subject: LoadedModel, mesh: Mesh) -> list[int]:
    """Numbers of ranks that divide all experts, whole groups of those of `tp`. Raises UsageError for a model that has
    none."""
    banks = [group.axes[EXPERTS] for group in subject.ledger.groups if EXPERTS in group.axes]
    if not banks:
        raise UsageError(f"{subject.name} has no experts for {option('ep')} to divide", f"ask for {option('tp')}")
    return [count for count in divisors(banks) if count == 1 or count % mesh.tp == 0]


def _with(mesh: Mesh, unknown: str, count: int) -> Mesh:
    """The mesh with so many ranks: one rank of `tp` divides no tokens of the stream, by no plan."""
    sizes: dict[str, Any] = {unknown: count}
    own = replace(mesh, **sizes)
    return replace(own, sp=False, plan="torch") if own.tp == 1 and unknown == "tp" else own


def started(unknown: str, terms: Counting) -> Counting:
    """The terms of a point before the number of ranks is known."""
    mesh = terms.mesh
    if mesh is None or unknown != "tp" or mesh.tp > 1:
        return terms
    own = _with(mesh, unknown, 1)
    return replace(terms, mesh=None if own == Mesh() else own)


def _even(subject: LoadedModel, mesh: Mesh) -> list[int]:
    """Numbers of ranks that divide all rows, of a class whose padding was not compared; none of another."""
    compared = subject.family in TORCH_PLAN or unruled(subject.architecture) is not None
    return [] if compared else rows_divisors(subject, replace(mesh, fsdp=2))


def _between(tried: list[int], count: int, holds: Callable[[int], bool]) -> tuple[int, list[int]]:
    """The fewest ranks up to a power of 2 that are enough, and one fewer. Where some are refused, the powers alone."""
    least, most = (tried[-1] if tried else 0), count
    try:
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (least, middle) if holds(middle) else (middle, most)
    except TfacctError:
        return count, tried[-1:]
    return most, [least] if least else []


def _how(unknown: str, among: list[int], refused: list[int]) -> list[str]:
    if unknown == "tp":
        fewer = f" Not counted: {', '.join(f'{count:,}' for count in refused)}." if refused else ""
        return [f"tp divides the query heads: {', '.join(f'{count:,}' for count in among)}.{fewer}"]
    if unknown == "ep":
        return [f"ep divides the experts: {', '.join(f'{count:,}' for count in among)}."]
    if unknown == "pp":
        return ["The numbers are those of the fullest stage."]
    return ["The numbers are those of one rank, each with a batch of its own."]


def beside(unknown: str, mesh: Mesh | None) -> str:
    """The ranks that were given beside the unknown ones, for a title."""
    given = {} if mesh is None else {axis: getattr(mesh, axis) for axis in (*RANKS, "cp") if getattr(mesh, axis) > 1}
    also = " with sp" if mesh is not None and mesh.sp else ""
    return "".join(f", {axis} {count:,}" for axis, count in given.items() if axis != unknown) + also


def answered(unknown: str, equation: Equation, found: Solution, mesh: Mesh | None) -> str:
    """What is true from the fewest ranks on, in one sentence."""
    left, right = equation.left.text, equation.right.text
    if found.answer == 1 and (mesh is None or mesh.ranks == 1):
        return f"One rank is enough: {left} stays within {right}."
    return f"The smallest {unknown} is {found.answer:,}: {left} stays within {right} on each rank."
