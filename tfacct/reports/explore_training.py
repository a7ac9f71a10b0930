"""The memory of a training step, on one device and on several, as the page shows it.

The bytes are counted here, not on the page. A page of few models has them as laws: of every phase that can be the peak,
how its bytes grow with batch and context. They are fitted to the phases of a few steps, and checked with another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Request
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import mesh_of
from tfacct.reports import counting
from tfacct.reports.train import train
from tfacct.training.layouts import sent_bytes
from tfacct.training.memory import training_memory
from tfacct.training.phases import MemoryTimeline, Phase
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import refusal

CONTEXT = 4096
"""Tokens of a step whose bytes are numbers, or as many as the model was made for."""
RANKS = (1, 2, 4, 8)
PARTS = ("weights", "optimizer", "gradients", "saved", "temporary", "gathered")
"""Parts of what is alive in a phase."""
DTYPES = ("bf16", "fp32")
BATCHES = ((1, 1, 1), (2, 3, 5))
"""Batches that a law is fitted to, and one that it is checked with. One sequence alone is laid out in another way."""
FAR = 1021
GRID = (1, 2, 3, 5, 8, 16, 40, 120, 1000)
"""Batches at which it is tried which phases decide."""

ALWAYS, BY_PHASE = ("weights", "optimizer_state"), ("gradients", "saved", "temporary", "gathered")
"""Parts that are the same in every phase, and the others."""

Law: TypeAlias = list[int]
"""Bytes as coefficients of 1, B · T, T, B, B · T² and T²; those at the end that are 0 are left out."""


def training(subject: LoadedModel, *, turns: bool) -> dict[str, Any]:
    """Bytes at the peak of a training step by part, for each number of ranks that FSDP divides the weights among, or
    `why` they are not counted. `turns`: as laws of batch and context, where the model reads no source."""
    why = refusal(subject, Recipe("bf16").checked())
    try:
        if why is not None:
            return {"why": why}
        if turns and subject.source is None and (laws := list(_laws(subject))):
            return {"laws": laws}
        context = min(CONTEXT, subject.context)
        counted = [ranks for ranks in RANKS if ranks == 1 or _shares(subject, ranks)]
        source = {} if subject.source is None else {"source": subject.source}
        return {"context": context, **source, "steps": [_peak(subject, context, ranks) for ranks in counted]}
    except TfacctError as error:
        return {"why": error.message.removeprefix(f"{subject.name}: ")}


def _shares(subject: LoadedModel, ranks: int) -> bool:
    """True if the step of one of so many ranks is counted."""
    return refusal(subject, Recipe("bf16", mesh=mesh_of(fsdp=ranks)).checked()) is None


def _peak(subject: LoadedModel, context: int, ranks: int) -> list[Any]:
    """Ranks, the phase of the peak, and the bytes of its parts."""
    (facts,) = train([subject], Request(ctx=context), Recipe("bf16", mesh=mesh_of(fsdp=ranks))).models
    peak = max(facts["phases"], key=lambda phase: phase["total_bytes"])
    parts = [peak[f"{part}_bytes"] for part in PARTS]
    if sum(parts) != peak["total_bytes"] or facts["peak_bytes"] != peak["total_bytes"]:
        raise TfacctError("the parts of the peak do not add up to it")
    return [ranks, peak["phase"], *parts]


class Region(NamedTuple):
    """Steps that are laid out alike: of one sequence or of more, of contexts from one to another (0: any)."""

    batches: tuple[int, int, int]
    first: int
    last: int

    @property
    def contexts(self) -> list[int]:
        """Four of its contexts, far from each other; fewer where it has no four."""
        least, most = self.first, self.last or self.first + FAR
        found = {least, least + 3, least + (most - least) // 3, most}
        return sorted(each for each in found if least <= each <= most)


def _laws(subject: LoadedModel) -> Iterator[dict[str, Any]]:
    for dtype in DTYPES:
        if refusal(subject, Recipe(dtype).checked()) is not None:
            continue
        for region in _regions(subject):
            found = [law for ranks in RANKS if (law := _law(subject, dtype, ranks, region)) is not None]
            if found:
                yield {"dtype": dtype, "of": [region.batches[0], region.first, region.last], "ranks": found}


def _regions(subject: LoadedModel) -> Iterator[Region]:
    """Where a window begins to reach across a sequence, a mask is made for it."""
    windows = {stack.block.window for stack in subject.architecture.stacks if stack.block.window is not None}
    starts = [1, *sorted(window for window in windows if window > 1)]
    for batches in BATCHES:
        for first, end in zip(starts, [*starts[1:], 1], strict=True):
            yield Region(batches, first, end - 1)


def _law(subject: LoadedModel, dtype: str, ranks: int, region: Region) -> dict[str, Any] | None:
    """The phases of one rank's step as laws; None where they are none."""
    recipe = Recipe(dtype, mesh=mesh_of(fsdp=ranks)).checked()
    if refusal(subject, recipe) is not None or len(region.contexts) < 4:
        return None

    def at(batch: int, context: int) -> list[Phase]:
        work = counting.workload(subject, Request(ctx=context, batch=batch))
        return [*MemoryTimeline(training_memory(subject, work, recipe).step, every_operation=True).phases()]

    *own, beyond = region.contexts
    one, other, further = region.batches
    rows = [[at(batch, context) for context in own] for batch in dict.fromkeys((one, other))]
    held = at(further, beyond)
    names = [phase.name for phase in held]
    if any([phase.name for phase in each] != names for row in rows for each in row):
        return None

    def fitted(number: int, field: str) -> Law | None:
        return _fitted(own, [[getattr(each[number], field) for each in row] for row in rows])

    totals = [fitted(number, "total") for number in range(len(held))]
    if any(law is None or value(law, further, beyond) != one.total for law, one in zip(totals, held, strict=True)):
        return None
    deciding = _deciding([law for law in totals if law is not None], region)
    always = [fitted(0, field) for field in ALWAYS]
    laws = [[fitted(number, field) for field in BY_PHASE] for number in deciding]
    if any(law is None for each in (always, *laws) for law in each):
        return None
    sends = {_sent(subject, recipe, batch, context) for batch, context in ((one, own[0]), (further, beyond))}
    if len(sends) > 1:
        return None
    phases = [[names[at], *each] for at, each in zip(deciding, laws, strict=True)]
    return {"ranks": ranks, "sent": sends.pop(), "always": always, "phases": phases}


def _sent(subject: LoadedModel, recipe: Recipe, batch: int, context: int) -> int:
    """Bytes that one rank sends in a step; 0 where there is one."""
    if recipe.mesh is None:
        return 0
    return sent_bytes(subject, counting.workload(subject, Request(ctx=context, batch=batch)), recipe)


def value(law: Sequence[int], batch: int, context: int) -> int:
    """Bytes that a law comes to."""
    tokens = batch * context
    powers = (1, tokens, context, batch, tokens * context, context * context)
    return sum(number * power for number, power in zip(law, powers, strict=False))


def _fitted(contexts: Sequence[int], rows: Sequence[Sequence[int]]) -> Law | None:
    """The law of these bytes, by batch and context; None where its coefficients are no whole numbers. Batches follow
    each other; of one alone nothing grows with it."""
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
    """Whole numbers that a parabola through three points has, the constant first."""
    (one, two, three), (first, second, third) = at, values
    slope, odd = divmod(second - first, two - one)
    later, too = divmod(third - first, three - one)
    bend, rest = divmod(later - slope, three - two)
    if odd or too or rest:
        return None
    return first - slope * one + bend * one * two, slope - bend * (one + two), bend


def _deciding(laws: Sequence[Law], region: Region) -> list[int]:
    """Numbers of the laws that can be the largest in a region, the first of those that are as large.

    Those that are the largest somewhere on a grid, and others that no one of these, and no mean of two, is above.
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
    kept = sorted(largest)
    pairs = [(places[one], places[other]) for one, other in combinations(kept, 2)]
    return sorted({*kept, *(at for at in found if not any(_between(*pair, places[at]) for pair in pairs))})


def _place(law: Law, region: Region, steep: bool) -> list[int]:
    """Numbers of a law that are all at most those of another only where it is nowhere in the region above it: its value
    at the least step first, then how it grows from there, or its value and growth with the batch at the last context.
    """
    more = law + [0] * (6 - len(law))
    batch, several = region.batches[0], region.batches[0] > 1
    first = _beyond(more, batch, region.first, several)
    if steep or not region.last:
        return first
    return [each for at in (first, _beyond(more, batch, region.last, several)) for each in (at[0], at[2])]


def _beyond(law: Law, batch: int, context: int, several: bool) -> list[int]:
    """Coefficients of a law in what context (s) and batch (r) are more than these: of 1, s, r, r · s, s² and r · s²."""
    _, both, tokens, each, steep, square = law
    slope, bend = both * batch + tokens, steep * batch + square
    rows = both * context + each + steep * context * context, both + 2 * context * steep, steep
    more, too, last = rows if several else (0, 0, 0)
    return [value(law, batch, context), slope + 2 * context * bend, more, too, bend, last]


def _above(place: Sequence[int], other: Sequence[int], *, strictly: bool = False) -> bool:
    """True where a law is nowhere below another; `strictly`: everywhere above it."""
    least = [one - two for one, two in zip(place, other, strict=True)]
    return min(least) >= 0 and (not strictly or min(least[:: 2 if len(least) == 4 else 6]) > 0)


def _between(one: Sequence[int], other: Sequence[int], place: Sequence[int]) -> bool:
    """True where some mean of two laws is everywhere above a third."""
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
