"""Attention that is run again: its module keeps what it reads, and its other tensors come back in the backward pass.

As torch.utils.checkpoint, not reentrant, runs the attention module of each block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfacct.ledger import paths
from tfacct.ledger.kept import AGAIN, Held, Kept, Moment, Pass, Run

ATTENTION = paths.in_every(paths.BLOCKS, "attn.")
"""What the names of attention's operations and tensors begin with."""
BEHIND = f"{ATTENTION}drop"
"""The dropout of its result, which is the block's."""


def attention_again(whole: Pass) -> Pass:
    """The pass, with the attention of every block run again."""
    again = frozenset(name for section in whole.blocks for name in section.run.order if _inside(name))
    blocks = tuple(section._replace(run=_again(section.run)) for section in whole.blocks)
    return whole._replace(blocks=blocks, again=again)


def _inside(name: str) -> bool:
    return name.startswith(ATTENTION) and name != BEHIND


def _again(run: Run) -> Run:
    operations = [name for name in run.order if _inside(name)]
    remade = [line for line in run.kept if _inside(line.path) and all(map(_inside, line.by))]
    gone = {line.path for line in remade}
    kept = tuple(_read(line) for line in run.kept if line.path not in gone)
    moments = [
        moment._replace(held=(*moment.held, *_alive(run, remade, moment.at))) if _inside(moment.at) else moment
        for moment in run.moments
    ]
    # The gradient of its result, where that is not the stream's, waits while it runs again.
    waiting = next(moment.held[1:] for moment in run.moments if moment.at == operations[-1])
    second = [
        Moment(operations[-1], (*_own(moment), *_alive(run, remade, moment.at), *waiting), done=False)
        for moment in run.ahead
        if _inside(moment.at) and moment.at != operations[-1]
    ]
    ahead = tuple(moment for moment in run.ahead if not _inside(moment.at))
    return Run(run.order, kept, (*moments, *second), ahead)


def _read(line: Kept) -> Kept:
    """A line that is kept anyway; what attention reads is needed to run it again."""
    if _inside(line.path) or not any(map(_inside, line.by)):
        return line
    return Kept(line.path, line.spec, (*line.by, AGAIN), line.role, line.times)


def _alive(run: Run, remade: Iterable[Kept], at: str) -> Iterator[Held]:
    """Tensors that were made again and are there while an operation runs, forwards or backwards."""
    there = {line.path for line in run.alive(at)}
    return (Held(line.spec, line.role, line.times) for line in remade if line.path in there)


def _own(moment: Moment) -> Iterator[Held]:
    """What attention itself holds while it runs, without the stream that its result was added to."""
    return (held for held in moment.held if not held.path)
