"""Runs of what is written out: lines of what it keeps, and all that is there beside them at any moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tfacct.ledger.kept import Cast, Held, Kept, Moment, Run
from tfacct.profiles.written import INPUT, Seen, Trace
from tfacct.profiles.written_storage import Kind

MOST = 64
_RUNS: dict[Any, Run] = {}
"""Runs of blocks: they depend on no size but those of 1, and whether a window is reached across."""


def cached(key: tuple[Any, ...], make: Callable[[], Run]) -> Run:
    """A run, made once."""
    if key not in _RUNS:
        if len(_RUNS) >= MOST:
            _RUNS.clear()
        _RUNS[key] = make()
    return _RUNS[key]


def part_of(t: Trace) -> Run:
    """The run of a part of a block that is made of its parts, without casts."""
    run = run_of(t, t, "")
    moments = tuple(moment._replace(alone=False) for moment in run.moments)
    return run._replace(moments=moments, bare=(), remade=(), casts=None)


def run_of(kept: Trace, bare: Trace, reads: str = INPUT) -> Run:
    """The run of a block: it keeps its tensors, or what it `reads` alone."""
    needed = {node.at for node in kept.nodes}
    order = tuple(name for name in kept.order if name in needed)
    place = {name: number for number, name in enumerate(order)}
    lines = tuple(
        Kept(path, spec, tuple(sorted(by, key=place.__getitem__)), role)
        for path, ((spec, role), by) in kept.lines.items()
    )
    first = [(place[line.by[0]], line) for line in lines if line.path != reads]
    up_to = [_kinds(line for start, line in first if start <= number) for number in range(len(order))]
    there = min((place[line.by[0]] for line in lines if line.path == reads), default=len(order))
    read = (Held("B T D", "full", path=reads),) if reads else ()
    names = _stand_ins(kept.order, place)

    def beside(seen: Seen) -> dict[Kind, int]:
        found = Counter(seen.there)
        found.subtract(up_to[place[names[seen.at]]])
        return {kind: count for kind, count in found.items() if count}

    moments = (
        Moment(names[each.at], _held(kinds), each.done, each.after, alone=True)
        for each, kinds in _fullest(kept.backwards, names, beside)
    )
    ahead = (
        Moment(
            names[each.at],
            (*_held(kinds), *(read if place[names[each.at]] < there else ())),
            after=each.after,
        )
        for each, kinds in _fullest(kept.forwards, names, beside)
    )
    alone = (Moment(names[each.at], _held(kinds)) for each, kinds in _fullest(bare.forwards, names, _all_of))
    casts = (Cast(at, Held(*kind), path) for at, kind, path in kept.casts)
    remade = tuple(Kept(path, spec, tuple(by), role) for path, ((spec, role), by) in kept.remade.items())
    early = _held(kept.early or {})
    return Run(order, lines, tuple(moments), tuple(ahead), early, tuple(alone), remade, casts=tuple(casts))


def _kinds(lines: Iterable[Kept]) -> Counter[Kind]:
    """How many tensors there are of each kind."""
    found: Counter[Kind] = Counter()
    for line in lines:
        found[line.spec, line.role] += int(line.times)
    return found


def let_go(run: Run) -> Run:
    """A block that runs again: what it read goes with the first product, for which the last of its tensors is made
    again; casts of weights and of that input need none."""
    place = {name: number for number, name in enumerate(run.order)}
    first = min(place[line.by[0]] for line in run.kept)
    gone = Held("B T D", "full", -1)
    moments = (m._replace(held=(*m.held, gone)) if place[m.at] < first else m for m in run.moments)
    return run._replace(moments=tuple(moments))


def _stand_ins(every: Iterable[str], place: Mapping[str, int]) -> dict[str, str]:
    """For each operation the last one up to it that a gradient goes through; the first of them for those in front."""
    last = next(iter(place))
    names = {"": last}
    for name in every:
        last = name if name in place else last
        names[name] = last
    return names


def _all_of(seen: Seen) -> dict[Kind, int]:
    return seen.there


def _fullest(
    every: Iterable[Seen], names: Mapping[str, str], beside: Callable[[Seen], dict[Kind, int]]
) -> Iterator[tuple[Seen, dict[Kind, int]]]:
    """Instants of each operation that no other of the same surpasses, and what is there beside what is kept."""
    found: dict[tuple[str, bool, bool], list[tuple[Seen, dict[Kind, int]]]] = {}
    for seen in every:
        kinds = beside(seen)
        known = found.setdefault((names[seen.at], seen.done, seen.after), [])
        if not any(_within(kinds, other) for _, other in known):
            known[:] = [(one, other) for one, other in known if not _within(other, kinds)]
            known.append((seen, kinds))
    return (each for every_ in found.values() for each in every_)


def _within(kinds: Mapping[Kind, int], other: Mapping[Kind, int]) -> bool:
    return all(kinds.get(kind, 0) <= other.get(kind, 0) for kind in {*kinds, *other})


def _held(kinds: Mapping[Kind, int]) -> tuple[Held, ...]:
    return tuple(Held(spec, role, count) for (spec, role), count in kinds.items())
