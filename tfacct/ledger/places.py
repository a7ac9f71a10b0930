"""What follows from the order of a run, whatever its sizes: worked out once for all contexts and batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tfacct.ledger.kept import Held, Kept, Moment, Role, Run


Kinds: TypeAlias = dict[int, int]
"""How many tensors there are of each kind, by its number."""
Terms: TypeAlias = tuple[tuple[int, int], ...]
"""The same, for reading alone."""


ALONE = -1
"""The number of the stream's gradient among the kinds: gone where a moment is alone. Its size stands last, below 0."""


class Reached(NamedTuple):
    """A moment, and the place of its operation."""

    at: str
    place: int
    done: bool
    after: bool
    alone: bool


class Places:
    """The places of a run's operations, and by them its lines and moments. Lines of a `known` name are there all the
    time, and counted elsewhere: the run is made again from them. Tensors of the name `none` are not there.

    Tensors of the same axes and role are of one kind, and `kinds` numbers these. A moment has so many of each, kept and
    held together, held ones that kept lines are once: `changes` says how many more each of the backward pass has than
    the one before it, `changes_ahead` each of the forward pass. `kept`: how many are kept up to each place. `casts`:
    the place, kind and number of each, and whether a line keeps it; `all_casts`, `unsaved`: of all, and of those that
    none keeps.
    """

    def __init__(self, run: Run, known: str = "", none: str = "") -> None:
        self.run, self.known, order = run, known, run.order
        self._numbers: dict[tuple[str, Role], int] = {}
        place = self.of = dict(zip(reversed(order), range(len(order) - 1, -1, -1), strict=True))
        first = self.first = dict[str, int]()  # place of the first operation that needs a line
        added: dict[tuple[int, int], int] = {}
        for line in run.kept:
            needed = min([place[name] for name in line.by if name in place], default=None)
            if needed is not None:
                first[line.path] = needed
                if line.path != known:
                    term = needed, self.kind(line)
                    added[term] = added.get(term, 0) + line.times
        if known:
            first[known] = first[none] = 0
        self._remade = [(min([place[name] for name in line.by]), line) for line in run.remade]
        self.kept = kept = self._kept(added)
        moments = [moment for moment in run.moments if self._runs(moment)]
        self.moments = tuple(map(self._reached, moments))
        self.changes = _changes([self._there(moment, kept) for moment in moments])
        ahead = self._fullest(run.ahead, kept)
        self.ahead = tuple(self._reached(moment) for moment, _ in ahead)
        self.changes_ahead = _changes([there for _, there in ahead])
        self.fullest_ahead = _fullest(there for _, there in ahead)
        bare = _surpassing([(moment, place[moment.at], 0, self._more(moment.held, {})) for moment in run.bare])
        self.bare = [moment.at for moment, *_ in bare]
        self.changes_bare = _changes([there for *_, there in bare])
        self.fullest_bare = _fullest(there for *_, there in bare)
        self.casts = [(place[each.at], self.kind(each.held), each.held.times, each.kept) for each in run.casts or ()]
        unsaved = self._more([each.held for each in run.casts or () if not each.kept], {})
        saved = self._more([each.held for each in run.casts or () if each.kept], unsaved)
        self.unsaved, self.all_casts = tuple(unsaved.items()), tuple(saved.items())
        self.kinds = tuple(self._numbers)

    def kind(self, tensor: Held | Kept) -> int:
        """The number of a tensor's kind."""
        return self._numbers.setdefault((tensor.spec, tensor.role), len(self._numbers))

    @cached_property
    def found(self) -> dict[Any, Any]:
        """What the accounts found of it, whatever the sizes, by what they asked for."""
        return {}

    def below(self, place: int) -> Sequence[bool]:
        """Of each moment of the backward pass, whether its operation stands in front of a place."""
        key = Reached, place
        if key not in self.found:
            self.found[key] = [one.place < place for one in self.moments]
        below: Sequence[bool] = self.found[key]
        return below

    def passed(self, at: str) -> Sequence[int]:
        """Of each moment of the backward pass: 1 where an operation has read all that it needs, 2 once it is passed, 0
        up to there."""
        key = Reached, at
        if key not in self.found:
            place = self.of[at]
            self.found[key] = [2 if one.place < place else int(one.at == at and one.after) for one in self.moments]
        passed: Sequence[int] = self.found[key]
        return passed

    @cached_property
    def stops(self) -> Sequence[int]:
        """Places of operations that have moments of their own, and the end."""
        return [*sorted({self.of[moment.at] for moment in self.run.moments}), len(self.run.order)]

    def _runs(self, moment: Moment) -> bool:
        """False of an operation that a run made again stops at, without its weight's gradient, if any moment is."""
        return not self.known or moment.done or self.of[moment.at] != self.run.last

    def _reached(self, moment: Moment) -> Reached:
        return Reached(moment.at, self.of[moment.at], moment.done, moment.after, moment.alone)

    def _more(self, tensors: Iterable[Held | Kept], there: Kinds, sign: int = 1) -> Kinds:
        """Tensors more than are there; or fewer."""
        found = dict(there)
        for tensor in tensors:
            kind = self.kind(tensor)
            found[kind] = found.get(kind, 0) + sign * tensor.times
        return found

    def _beside(self, moment: Moment, kept: Sequence[Kinds]) -> Kinds:
        """What is kept and held at a moment."""
        here = self.of[moment.at]
        held = [each for each in moment.held if not each.path or self.first.get(each.path, here + 1) > here]
        return self._more(held, kept[here])

    def _there(self, moment: Moment, kept: Sequence[Kinds]) -> Kinds:
        """The same in the backward pass: with what attention has made again, without what is gone once an operation of
        a block that runs again has read it."""
        found = self._beside(moment, kept)
        if moment.again:
            made = [line for needed, line in self._remade if needed <= self.of[moment.again]]
            found = self._more(made, found)
        if moment.after and self.known:
            found = self._more(self.run.read_first.get(moment.at, ()), found, -1)
        return found | {ALONE: 1} if moment.alone else found

    def _fullest(self, moments: Sequence[Moment], kept: Sequence[Kinds]) -> list[tuple[Moment, Kinds]]:
        """Moments of a forward pass that no other surpasses, whatever the sizes, and what is there. Those up to the
        last operation of a second run are apart: it has no others."""
        if not moments:
            return []
        last, of = (self.run.last, False), self.of
        each = [(m, of[m.at], ((of[m.at], m.after) > last, m.alone), self._beside(m, kept)) for m in moments]
        return [(moment, there) for moment, _, _, there in _surpassing(each)]

    def _kept(self, added: Mapping[tuple[int, int], int]) -> list[Kinds]:
        """How many tensors of each kind are kept up to each place. `added`: how many at a place, of a kind."""
        found: list[Kinds] = []
        so_far: Kinds = {}
        by_place: dict[int, list[tuple[int, int]]] = {}
        for (place, kind), times in added.items():
            by_place.setdefault(place, []).append((kind, times))
        for place in range(len(self.run.order)):
            if place in by_place:
                so_far = dict(so_far)
                for kind, times in by_place[place]:
                    so_far[kind] = so_far.get(kind, 0) + times
            found.append(so_far)
        return found


def _fullest(every: Iterable[Kinds]) -> Terms:
    """The most tensors of each kind that any has."""
    most: Kinds = {}
    for there in every:
        for kind, times in there.items():
            most[kind] = max(times, most.get(kind, 0))
    return tuple(most.items())


def _changes(every: Iterable[Kinds]) -> tuple[Terms, ...]:
    """Of each, how many tensors it has of each kind more than the one before, or fewer."""
    found: list[Terms] = []
    before: Kinds = {}
    for own in every:
        more = [(kind, times - before.get(kind, 0)) for kind, times in own.items() if times != before.get(kind, 0)]
        less = [(kind, -times) for kind, times in before.items() if kind not in own]
        found.append((*more, *less))
        before = own
    return tuple(found)


def _surpassing(each: Sequence[Any]) -> list[Any]:
    """Of moments, each with its place, what sets it apart, and what is there: those that no later one of the same sort
    surpasses, which has as much of each kind and more of one."""
    found: list[tuple[int, Any, Kinds]] = []
    numbered = sorted(range(len(each)), key=lambda nth: -each[nth][1])
    for nth in numbered:
        _, _, sort, there = each[nth]
        if not any(sort == other and _within(there, more) for _, other, more in found):
            found.append((nth, sort, there))
    return [each[nth] for nth in sorted(nth for nth, _, _ in found)]


def _within(one: Mapping[int, int], other: Mapping[int, int]) -> bool:
    """True if there is more of the other, and of no kind less."""
    get = other.get
    for kind, times in one.items():
        if times > get(kind, 0):
            return False
    return one != other and all(times >= 0 or one.get(kind, 0) <= times for kind, times in other.items())
