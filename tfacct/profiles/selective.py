"""Attention that is run again: its module keeps what it reads, and its other tensors come back in the backward pass.

As torch.utils.checkpoint, not reentrant, runs the attention module of each block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tfacct.ledger import paths
from tfacct.ledger.kept import AGAIN, SHARES, TURNS, Handed, Held, Kept, Moment, Pass, Run

ATTENTION = paths.in_every(paths.BLOCKS, "attn.")
"""What the names of attention's operations and tensors begin with."""
BEHIND = f"{ATTENTION}drop"
"""The dropout of its result, which is the block's."""
ADAPTER = ".lora_"
"""In the names of an adapter's operations."""
SCORES, WEIGHTS, SUMMED = (f"{ATTENTION}{name}" for name in ("scores", "softmax", "values"))
"""Eager attention's scores and weights, and the operation that sums values by them."""

QUERIES, KEYS, COPIES = Held("B T N H"), Held("B S K H"), Held("B S N H")
TURNED = f"{ATTENTION}turned_by_"
"""What operations begin with that turn by angles which the module itself makes."""


def attention_again(
    whole: Pass,
    *,
    drops: bool = False,
    reads: str = "",
    apart: bool | None = None,
    windowed: Sequence[bool] = (),
    copies: bool = False,
    returns: bool = False,
) -> Pass:
    """The pass, with the attention of every block run again. `drops`: its module drops numbers of its result itself.

    Beside adapters, `reads` names what attention reads, which is kept though no gradient needs it, and `apart` says
    whether the gradient of its result is not the stream's. `windowed`: each block's attention has a window. `copies`:
    its function itself copies queries and keys for their product. `returns`: the caller has what the block in front
    gave beside the stream.
    """
    how = drops, reads, apart, copies, returns
    blocks = tuple(section._replace(run=_again(section.run, *how)) for section in whole.blocks)
    return with_attention_again(whole._replace(blocks=blocks), drops=drops, windowed=windowed)


def with_attention_again(whole: Pass, *, drops: bool = False, windowed: Sequence[bool] = ()) -> Pass:
    """The pass of blocks whose attention runs again, and what it is handed for that."""
    blocks = whole.blocks
    again = frozenset(name for section in blocks for name in section.run.order if _inside(name, drops))
    # A whole block that runs again keeps a mask that it is given by position; attention's is always given by name.
    front, given = whole.front.run, tuple(line for line in whole.front.run.kept if line.by == (AGAIN,))
    kept = tuple(line for line in front.kept if line not in given)
    handed = (*whole.handed, *(Handed(Held(line.spec, line.role)) for line in given))
    if windowed and not any(section.run.remade for section in blocks if 0 in section.numbers):
        handed = tuple(_behind_first(handed, windowed))
    first = whole.front._replace(run=front._replace(kept=kept))
    return whole._replace(front=first, blocks=blocks, again=again, handed=handed)


def _behind_first(handed: Iterable[Handed], windowed: Sequence[bool]) -> Iterator[Handed]:
    """What is handed where block 0 has nothing to run again: a mask goes with the next block of its kind."""
    alike = next((number for number, one in enumerate(windowed) if number and one == windowed[0]), None)
    for each in handed:
        if each.first or "S" not in each.held.spec.split():
            yield each
        elif alike is not None:
            yield each._replace(first=alike)


def lost_angles(before: Pass, adapted: Pass) -> tuple[Handed, ...]:
    """Angles that no block turns by whose input needs a gradient: attention that runs again is handed them anyway."""
    there = {line.path for line in adapted.front.run.kept}
    lines = (line for line in before.front.run.kept if not frozenset(TURNS).isdisjoint(line.by))
    return tuple(Handed(Held(line.spec, line.role), first=1) for line in lines if line.path not in there)


def _inside(name: str, drops: bool) -> bool:
    return name.startswith(ATTENTION) and (drops or name != BEHIND)


def _again(run: Run, drops: bool, reads: str, apart: bool | None, copies: bool, returns: bool) -> Run:
    inside = frozenset(name for name in (*run.order, *(line.path for line in run.kept)) if _inside(name, drops))
    remade = [line for line in run.kept if line.path in inside and inside.issuperset(line.by)]
    gone = {line.path for line in remade}
    first = next((name for name in run.order if name in inside), AGAIN)
    kept = tuple(_read(line, inside, first) for line in run.kept if line.path not in gone)
    if not remade:
        return run
    if not any(AGAIN in line.by for line in kept):
        kept = (Kept(reads, "B T D", (first, AGAIN)), *kept)
    moments = [moment._replace(again=moment.at) if moment.at in inside else moment for moment in run.moments]
    last = next(name for name in reversed(run.order) if name in inside)
    end = next(moment for moment in run.moments if moment.at == last and moment.done)
    adapter = ADAPTER in last
    # The gradient of its result, where that is not the stream's, waits while it runs again; an adapter's is made first.
    waiting = end.held[:-1] if adapter else end.held[1:] if apart is None else ()
    if apart and not adapter and not drops:
        waiting = (Held("B T D"),)
    second = [
        Moment(last, (*_own(run, moment), *waiting), done=False, alone=end.alone, again=moment.at)
        for moment in run.ahead
        if moment.at in inside and (moment.at != last or (adapter and not moment.after))
    ]
    # What the module gives beside its result stays until the block ends: what values are weighted by.
    weights = tuple(Held(each.spec, each.role) for each in remade if WEIGHTS in each.path and SUMMED in each.by)
    behind = run.order.index(last)
    # Its function has queries and keys at hand, whether they are kept or not, and angles that it made itself.
    scored = tuple(
        Held(each.spec, each.role)
        for each in remade
        if not {SCORES, WEIGHTS}.isdisjoint(each.by) and (copies or not _copied(run, each))
    )
    angles = tuple(Held(each.spec, each.role) for each in remade if each.by[0].startswith(TURNED))
    more = {moment.at: weights if run.order.index(moment.at) > behind else () for moment in run.ahead} | {
        WEIGHTS: scored
    }
    more |= {moment.at: angles for moment in run.ahead if moment.at.startswith(TURNED)}
    front = tuple(each._replace(path=SHARES) for each in weights) if returns else ()
    ahead = tuple(moment._replace(held=(*moment.held, *more[moment.at], *front)) for moment in run.ahead)
    return Run(run.order, kept, (*moments, *second), ahead, remade=tuple(remade))


def _copied(run: Run, line: Kept) -> bool:
    """True if this is a copy that the product makes of queries or keys beside its function's own, and lets go of; or if
    its name is there anyway."""
    beside = next((moment.held for moment in run.ahead if moment.at == WEIGHTS), ())
    if any(each.path == line.path for each in beside):
        return True
    if line.role == "full" and line.spec in (QUERIES.spec, KEYS.spec):
        return Held(line.spec, line.role) in beside
    if line.spec == QUERIES.spec:
        return QUERIES in beside
    if line.spec not in (KEYS.spec, COPIES.spec) or COPIES in beside:  # for each query head, as values are
        return False
    return sum(each.times for each in beside if each[:2] == KEYS[:2]) > 1  # keys and values


def _read(line: Kept, inside: frozenset[str], first: str) -> Kept:
    """A line that is kept anyway; what attention reads is needed to run it again, and stays until the gradients of its
    `first` operation are made."""
    if line.path in inside or inside.isdisjoint(line.by):
        return line
    needed = line.by if first in line.by else (*line.by, first)
    return Kept(line.path, line.spec, (*needed, AGAIN), line.role, line.times)


def _own(run: Run, moment: Moment) -> Iterator[Held]:
    """What attention itself holds while it runs, without what its block does, and what is kept or made again anyway."""
    there = {line.path for line in run.alive(moment.at)}
    return (
        held for held in moment.held if not held.path or (held.path.startswith(ATTENTION) and held.path not in there)
    )
