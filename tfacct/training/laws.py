"""The bytes of each phase of a training step that can be the peak, as polynomials in batch and context.

The polynomials are fitted to the phases of a few steps, and checked with another step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

from tfacct.ledger.einsum import rounded_up
from tfacct.ledger.workload import Request, Workload
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.training.bounds import LEAST_TOKENS
from tfacct.training.layouts import sent_bytes
from tfacct.training.memory import TrainingMemory, training_memory
from tfacct.training.phases import PARTS, MemoryTimeline, Phase
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import refusal

BATCHES = ((1, 1, 1), (2, 3, 5))
"""Batches for fitting a law, and one for checking it. A single sequence has a different tensor layout."""
DTYPES = ("bf16", "fp32")
"""Dtypes of the fitted steps."""
FAR, PADDED = 992, 32
"""Distance of the last fitted context, and the multiple of tokens to which kernels pad some tensors, a few kilobytes a
layer: laws are those of padded contexts."""
GRID = (1, 2, 3, 5, 8, 16, 40, 120, 1000)
"""Batches at which the largest phase is computed."""
ALWAYS, BY_PHASE = PARTS[:2], PARTS[2:]
"""Parts that are the same in every phase, and the others."""

Law: TypeAlias = list[int]
"""Bytes as coefficients of 1, B · T, T, B, B · T² and T², without trailing zeros."""


class PeakLaws(NamedTuple):
    """Laws of the constant parts, and of the other parts by phase, for the phases that can be the peak."""

    always: list[Law]
    phases: list[tuple[str, list[Law]]]

    def peak(self, batch: int, context: int) -> int:
        """Bytes of the phase that decides."""
        return max(sum(value(law, batch, context) for law in (*self.always, *laws)) for _, laws in self.phases)


class Region(NamedTuple):
    """Steps with the same tensor layout: with one sequence or several, with contexts in a range (0: any)."""

    batches: tuple[int, int, int]
    first: int
    last: int

    @property
    def contexts(self) -> list[int]:
        """Four of its contexts, far from each other; fewer if it does not have four."""
        step = PADDED if not self.last or self.last - self.first >= 8 * PADDED else 1
        least = rounded_up(self.first, step)
        most = self.last // step if self.last else least + FAR // step
        found = {least, least + 3, least + (most - least) // 3, most}
        return sorted(each * step for each in found if least <= each <= most)

    @property
    def ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Batch and context of the smallest step, and of the step that checks a law."""
        return (self.batches[0], self.contexts[0]), (self.batches[2], self.contexts[-1])


def regions(model: LoadedModel) -> Iterator[Region]:
    """The regions of a step. A window mask exists only for sequences longer than the window."""
    windows = {stack.block.window for stack in model.architecture.stacks if stack.block.window is not None}
    starts = [1, *sorted(window for window in windows if window > 1)]
    for batches in BATCHES:
        for first, end in zip(starts, [*starts[1:], 1], strict=True):
            yield Region(batches, first, end - 1)


def peak_laws(region: Region, phases: Callable[[int, int], Sequence[Phase]]) -> PeakLaws | None:
    """The phases of a step as laws; None if they are not polynomials. `phases` returns those at a batch and a
    context."""
    *contexts, last = region.contexts
    if len(contexts) < 3:
        return None
    one, other, further = region.batches
    rows = [[phases(batch, context) for context in contexts] for batch in dict.fromkeys((one, other))]
    check = phases(further, last)
    names = [phase.name for phase in check]
    if any([phase.name for phase in each] != names for row in rows for each in row):
        return None

    def fitted(number: int, part: str) -> Law | None:
        return _fitted(contexts, [[getattr(each[number], part) for each in row] for row in rows])

    totals = [fitted(number, "total") for number in range(len(check))]
    if any(law is None or value(law, further, last) != phase.total for law, phase in zip(totals, check, strict=True)):
        return None
    deciding = _deciding([law for law in totals if law is not None], region)
    found = [
        [fitted(0, part) for part in ALWAYS],
        *([fitted(number, part) for part in BY_PHASE] for number in deciding),
    ]
    always, *laws = [[law for law in each if law is not None] for each in found]
    if any(None in each for each in found):
        return None
    return PeakLaws(always, [(names[number], each) for number, each in zip(deciding, laws, strict=True)])


def value(law: Sequence[int], batch: int, context: int) -> int:
    """Bytes of a law at a batch and a context."""
    tokens = batch * context
    powers = (1, tokens, context, batch, tokens * context, context * context)
    return sum(number * power for number, power in zip(law, powers, strict=False))


def _fitted(contexts: Sequence[int], rows: Sequence[Sequence[int]]) -> Law | None:
    """The law of these bytes, by batch and context; None if its coefficients are not integers. Batches are consecutive;
    with a single batch, nothing grows with it."""
    found = [_parabola(contexts, row) for row in rows]
    if any(row is None for row in found):
        return None
    first = found[0] or (0, 0, 0)
    each = [then - now for now, then in zip(first, found[-1] or first, strict=True)] if len(rows) > 1 else [0, 0, 0]
    batch = 2 if len(rows) > 1 else 0
    still = [now - batch * more for now, more in zip(first, each, strict=True)]
    law = [still[0], each[1], still[1], each[0], each[2], still[2]]
    while law and law[-1] == 0:
        law.pop()
    return law


def _parabola(at: Sequence[int], values: Sequence[int]) -> tuple[int, int, int] | None:
    """Integer coefficients of the parabola through three points, the constant first."""
    (one, two, three), (first, second, third) = at, values
    slope, odd = divmod(second - first, two - one)
    later, too = divmod(third - first, three - one)
    bend, rest = divmod(later - slope, three - two)
    if odd or too or rest:
        return None
    return first - slope * one + bend * one * two, slope - bend * (one + two), bend


def _deciding(laws: Sequence[Law], region: Region) -> list[int]:
    """Indices of the laws that can be the largest in a region; of equal laws, the first.

    These are the laws that are largest somewhere on a grid, and others that are not below one of these or a mean of
    two.
    """
    steep = any(any(law[4:]) for law in laws)
    places = [_place(law, region, steep) for law in laws]
    found: list[int] = []
    for number, place in enumerate(places):
        if not any(_above(places[known], place) for known in found):
            found = [known for known in found if not _above(place, places[known], strictly=True)] + [number]
    far = region.last or region.first + FAR**2
    grid = [(batch, region.first + (far - region.first) * part**3 // 24**3) for batch in GRID for part in range(25)]
    steps = [(max(batch, region.batches[0]), context) for batch, context in grid]
    steps = [(1, context) for _, context in steps] if region.batches[0] == 1 else steps
    largest = {max(found, key=lambda at: value(laws[at], *step)) for step in dict.fromkeys(steps)}
    ends = sorted(largest)
    pairs = [(places[one], places[other]) for one, other in combinations(ends, 2)]
    return sorted({*ends, *(at for at in found if not any(_between(*pair, places[at]) for pair in pairs))})


def _place(law: Law, region: Region, steep: bool) -> list[int]:
    """Numbers that compare two laws: if all are at most those of another law, this law is nowhere above it in the
    region. They are its value at the smallest step and its growth from there, or its value and growth with the batch at
    the last context.
    """
    more = law + [0] * (6 - len(law))
    batch, several = region.batches[0], region.batches[0] > 1
    first = _excess(more, batch, region.first, several)
    if steep or not region.last:
        return first
    return [each for at in (first, _excess(more, batch, region.last, several)) for each in (at[0], at[2])]


def _excess(law: Law, batch: int, context: int, several: bool) -> list[int]:
    """Coefficients of a law in the excess s of the context and r of the batch over these: of 1, s, r, r · s, s² and r ·
    s²."""
    _, both, tokens, each, steep, square = law
    slope, bend = both * batch + tokens, steep * batch + square
    rows = both * context + each + steep * context * context, both + 2 * context * steep, steep
    more, too, last = rows if several else (0, 0, 0)
    return [value(law, batch, context), slope + 2 * context * bend, more, too, bend, last]


def _above(place: Sequence[int], other: Sequence[int], *, strictly: bool = False) -> bool:
    """True if a law is nowhere below another; `strictly`: everywhere above it."""
    least = [one - two for one, two in zip(place, other, strict=True)]
    return min(least) >= 0 and (not strictly or min(least[:: 2 if len(least) == 4 else 6]) > 0)


def _between(one: Sequence[int], other: Sequence[int], place: Sequence[int]) -> bool:
    """True if some weighted mean of two laws is everywhere above a third."""
    low, high = Fraction(0), Fraction(1)
    for at, (first, second, third) in enumerate(zip(one, other, place, strict=True)):
        value_here = at % (2 if len(place) == 4 else 6) == 0
        grows, there = first - second, third + value_here - second  # the share w of the first: w · grows >= there
        if grows > 0:
            low = max(low, Fraction(there, grows))
        elif grows < 0:
            high = min(high, Fraction(there, grows))
        elif there > 0:
            return False
    return low <= high


def training_laws(model: LoadedModel, meshes: Mapping[int, Mesh | None]) -> Iterator[dict[str, Any]]:
    """The phases of a training step as laws, in each dtype and region, by number of ranks. `exact_every`: the peak is
    exact at contexts that are multiples of this number, from `exact_from` on; 0: it is an estimate."""
    for dtype in DTYPES:
        recipes = {ranks: Recipe(dtype, mesh=mesh).checked() for ranks, mesh in meshes.items()}
        if refusal(model, next(iter(recipes.values()))) is not None:
            continue
        recipes = {ranks: recipe for ranks, recipe in recipes.items() if refusal(model, recipe) is None}
        for region in regions(model):
            found = [law for ranks, recipe in recipes.items() if (law := _law(model, recipe, ranks, region))]
            if found:
                yield {"dtype": dtype, "of": [region.batches[0], region.first, region.last], "ranks": found}


def _law(model: LoadedModel, recipe: Recipe, ranks: int, region: Region) -> dict[str, Any] | None:
    """The phases of one rank's step as laws; None if they are not polynomials."""

    def at(batch: int, context: int) -> Workload:
        return selection.workload(model, Request(ctx=context, batch=batch))

    def memory(batch: int, context: int) -> TrainingMemory:
        return training_memory(model, at(batch, context), recipe)

    def phases(batch: int, context: int) -> list[Phase]:
        return [*MemoryTimeline(memory(batch, context).step, every_operation=True).phases()]

    laws = peak_laws(region, phases)
    if laws is None:
        return None
    batch, context = region.batches[-1], region.contexts[-1] - 1
    uneven = memory(batch, context)
    everywhere = not recipe.rounds_tokens and laws.peak(batch, context) == uneven.peak.total
    sent = {0 if recipe.mesh is None else sent_bytes(model, at(*step), recipe) for step in region.ends}
    if len(sent) > 1:
        return None
    return {
        "ranks": ranks,
        "exact_every": (1 if everywhere else PADDED) if uneven.exact else 0,
        "exact_from": LEAST_TOKENS,
        "sent": sent.pop(),
        "always": laws.always,
        "phases": [[name, *law] for name, law in laws.phases],
    }
