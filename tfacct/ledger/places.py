"""What follows from the order of a run, whatever its sizes: worked out once for all contexts and batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tfacct.ledger.kept import Held, Kept, Moment, Role, Run


class Reached(NamedTuple):
    """A moment, the place of its operation, and what is held, by its number among `Places.sums`. `again`: the place up
    to which attention has run again, or −1."""

    at: str
    place: int
    held: int
    done: bool
    after: bool
    alone: bool
    again: int


class Places:
    """The places of a run's operations, and by them its lines and moments. Lines of a `known` name are there all the
    time, and counted elsewhere.

    Tensors of the same axes and role are of one kind, and `kinds` numbers these. `sums`: what moments hold, each once:
    how many tensors of each kind, but for those that kept lines are; `backwards` is the number of those of the backward
    pass, which stand in front.
    """

    def __init__(self, run: Run, known: str = "") -> None:
        self.run, order = run, run.order
        self._numbers: dict[tuple[str, Role], int] = {}
        self._sums: dict[tuple[tuple[int, int], ...], int] = {}
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
            first[known] = 0
        self.added = tuple((needed, kind, times) for (needed, kind), times in added.items())
        self.remade = tuple(
            (min([place[name] for name in line.by]), self.kind(line), line.times) for line in run.remade
        )
        self.moments = self._reached(run.moments)
        self.backwards = len(self._sums)
        self.ahead = self._fullest(run.ahead)
        none: dict[int, int] = {}
        bare = [(place[moment.at], (0, False), moment.at, self._terms(moment.held), none) for moment in run.bare]
        self.bare = tuple((at, terms) for _, _, at, terms, _ in _surpassing(bare))
        self.kinds, self.sums = tuple(self._numbers), tuple(self._sums)

    def kind(self, tensor: Held | Kept) -> int:
        """The number of a tensor's kind."""
        return self._numbers.setdefault((tensor.spec, tensor.role), len(self._numbers))

    @cached_property
    def late(self) -> dict[Any, Any]:
        """What the accounts found of biases whose gradients come last, by what they asked for."""
        return {}

    @cached_property
    def stops(self) -> Sequence[int]:
        """Places of operations that have moments of their own, and the end."""
        return [*sorted({moment.place for moment in self.moments}), len(self.run.order)]

    @cached_property
    def fullest_ahead(self) -> tuple[tuple[int, int], ...]:
        """Most tensors of each kind that a moment of the forward pass holds: no moment holds more than all of these."""
        most: dict[int, int] = {}
        for moment in self.ahead:
            for kind, times in self.sums[moment.held]:
                most[kind] = max(times, most.get(kind, 0))
        return tuple(most.items())

    def _terms(self, tensors: Iterable[Held]) -> tuple[tuple[int, int], ...]:
        """How many tensors there are of each kind."""
        times: dict[int, int] = {}
        for tensor in tensors:
            kind = self.kind(tensor)
            times[kind] = times.get(kind, 0) + tensor.times
        return tuple(times.items())

    def _reached(self, moments: Iterable[Moment]) -> tuple[Reached, ...]:
        """Moments with their places."""
        return tuple(map(self._one, moments))

    def _fullest(self, moments: Sequence[Moment]) -> tuple[Reached, ...]:
        """Moments of a forward pass that no other surpasses, whatever the sizes. Those up to the last operation of a
        second run are apart: it has no others."""
        if not moments:
            return ()
        last, kept = (self.run.last, False), self._kept()
        each = []
        for moment in moments:
            here, terms = self.of[moment.at], self._held_at(moment)
            each.append((here, ((here, moment.after) > last, moment.alone), moment, terms, kept[here]))
        return self._reached(moment for _, _, moment, _, _ in _surpassing(each))

    def _kept(self) -> list[dict[int, int]]:
        """How many tensors of each kind are kept up to each place."""
        found: list[dict[int, int]] = []
        so_far: dict[int, int] = {}
        by_place: dict[int, list[tuple[int, int]]] = {}
        for place, kind, times in self.added:
            by_place.setdefault(place, []).append((kind, times))
        for place in range(len(self.run.order)):
            if place in by_place:
                so_far = dict(so_far)
                for kind, times in by_place[place]:
                    so_far[kind] = so_far.get(kind, 0) + times
            found.append(so_far)
        return found

    def _held_at(self, moment: Moment) -> tuple[tuple[int, int], ...]:
        here = self.of[moment.at]
        return self._terms(each for each in moment.held if not each.path or self.first.get(each.path, here + 1) > here)

    def _one(self, moment: Moment) -> Reached:
        here, terms = self.of[moment.at], self._held_at(moment)
        held = self._sums.setdefault(terms, len(self._sums))
        again = self.of[moment.again] if moment.again else -1
        return Reached(moment.at, here, held, moment.done, moment.after, moment.alone, again)


def _surpassing(each: Sequence[Any]) -> list[Any]:
    """Of moments, each with its place, what sets it apart, itself, what it holds and what is kept there, by kinds:
    those that no later one of the same sort surpasses, which has as much of each kind and more of one."""
    found: list[tuple[Any, Any, dict[int, int]]] = []
    numbered = sorted(range(len(each)), key=lambda nth: -each[nth][0])
    for nth in numbered:
        _, sort, _, terms, kept = each[nth]
        whole = dict(kept)
        for kind, times in terms:
            whole[kind] = whole.get(kind, 0) + times
        if not any(sort == other and _within(whole, more) for _, other, more in found):
            found.append((nth, sort, whole))
    return [each[nth] for nth in sorted(nth for nth, _, _ in found)]


def _within(one: Mapping[int, int], other: Mapping[int, int]) -> bool:
    """True if there is more of the other, and of no kind less."""
    get = other.get
    for kind, times in one.items():
        if times > get(kind, 0):
            return False
    return one != other and all(times >= 0 or one.get(kind, 0) <= times for kind, times in other.items())
