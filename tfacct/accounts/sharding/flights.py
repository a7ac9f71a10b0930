"""Microbatches in flight: which of them a rank of a pipeline has run forwards and not backwards, by the schedule.

GPipe: Huang et al. (arXiv 1811.06965), all forwards, then all backwards. 1F1B: Narayanan et al. (2104.04473), section
2.2. Interleaved: section 2.2.2 there. Zero bubble: Qi et al. (2401.10241), ZB-H1, whose gradients of weights wait. The
orders are those of torch.distributed.pipelining.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.stages import Stage
from tfacct.accounts.training import INPUT, Adapter, Step
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size, letters, size
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.kept import Held, Kept, Pass, Run, met
from tfacct.ledger.lines import Matmul, Pointwise

TOKENS = Kept("tokens", "B T", by=(), role="index")
NOTHING = Run()
"""What stands behind a stage that is not the last."""
ROUNDS = 3
"""Rounds of microbatches after which an interleaved schedule repeats itself."""


class Instant(NamedTuple):
    """The start of a backward pass: its stage among the rank's, the microbatches in flight in each of these, its own
    among them, how many others wait for gradients of weights, the stages that have gradients, and how many
    microbatches the last of these stages has run forwards."""

    stage: int
    flying: tuple[int, ...]
    waiting: int
    done: frozenset[int]
    forwards: int = 0


def instants(mesh: Mesh, rank: int, microbatches: int) -> set[Instant]:
    """The starts of backward passes of one rank that differ."""
    if mesh.chunks > 1:
        return set(_interleaved(mesh, rank, microbatches))
    return set(_single(mesh, rank, microbatches))


def _single(mesh: Mesh, rank: int, microbatches: int) -> Iterator[Instant]:
    ahead = microbatches if mesh.schedule == "gpipe" else min(mesh.pp - rank, microbatches)
    for number in range(min(microbatches, mesh.pp + 1)):
        flying = min(ahead, microbatches - number)
        waiting = min(number, rank) if mesh.schedule == "zero-bubble" else 0
        through = microbatches if number else ahead  # the last of these instants is as full as the others
        yield Instant(0, (flying,), waiting, frozenset((0,)) if number else frozenset(), through)


def _interleaved(mesh: Mesh, rank: int, microbatches: int) -> Iterator[Instant]:
    rounds = max(1, microbatches // mesh.pp)
    each = microbatches // rounds
    passes = min(rounds, ROUNDS) * each * mesh.chunks
    ahead = min((mesh.chunks - 1) * each + 2 * (mesh.pp - 1 - rank), passes)
    flying, done, through = [0] * mesh.chunks, frozenset[int](), 0
    forward, rest = 0, microbatches - min(rounds, ROUNDS) * each
    for backward in range(passes):
        while forward < min(passes, ahead + backward + 1):
            runs = forward // each % mesh.chunks
            flying[runs] += 1
            through += runs == mesh.chunks - 1
            forward += 1
        stage = mesh.chunks - 1 - backward // each % mesh.chunks
        later = rest if len(done) == mesh.chunks else 0
        yield Instant(stage, tuple(flying), 0, done, through + later)
        flying[stage] -= 1
        done |= {stage}


def pass_of_stage(run: Pass, stage: Stage) -> Pass:
    """What a stage runs of a pass, its blocks counted from 0. In front of one that is not the first stands what its
    blocks need of the positions; behind one that is not the last, nothing."""
    blocks = []
    for section in run.blocks:
        numbers = tuple(number - stage.blocks.start for number in section.numbers if number in stage.blocks)
        if numbers:
            blocks.append(section._replace(count=len(numbers), numbers=numbers))
    front = run.front if stage.first else run.front._replace(run=_for_blocks(run.front.run))
    idle = _idle(front.run, {name for section in blocks for name in section.run.order})
    kept = tuple(line for line in front.run.kept if line not in idle)
    front = front._replace(run=met(front.run._replace(kept=kept)))
    back = run.back if stage.last else run.back._replace(run=NOTHING)
    waiting = run.waiting
    if not stage.first or len(stage.blocks) > 1:  # the stream is the next block's as soon as a block is through
        waiting = tuple(held for held in waiting if "D" not in letters(held.spec))
    waiting += tuple(Held(line.spec, line.role) for line in idle)  # there while the blocks run forwards
    buffers = tuple(
        line for line in run.buffers if line.path != TOKENS.path and (stage.first or not line.path.startswith("embed."))
    )  # the batch is among what stays
    return run._replace(front=front, blocks=tuple(blocks), back=back, waiting=waiting, buffers=buffers)


def _idle(front: Run, names: set[str]) -> list[Kept]:
    """What only blocks of other stages keep of a front: no gradient turns in a first block whose queries are frozen."""
    return [line for line in front.kept if all(paths.repeated(name) and name not in names for name in line.by)]


def _for_blocks(front: Run) -> Run:
    """What blocks need of what stands in front of them: angles."""
    order = tuple(name for name in front.order if name.startswith("blocks."))
    return Run(order, tuple(line for line in front.kept if any(name in order for name in line.by)))


def ledger_of_stage(ledger: Ledger, stage: Stage) -> Ledger:
    """The ledger of one stage, its blocks counted from 0."""
    key = "stage", stage
    if key in ledger.known:
        known: Ledger = ledger.known[key]
        return known
    groups = [
        replace(group, numbers=tuple(number - stage.blocks.start for number in group.numbers))
        if group.numbers
        else group
        for group in ledger.groups
    ]
    found: Ledger = ledger.known.setdefault(key, replace(ledger, groups=tuple(groups)))
    return found


def lent_to(adapters: Iterable[Adapter], stage: Stage) -> tuple[Adapter, ...]:
    """The adapters of one stage, its blocks counted from 0."""
    blocks = stage.blocks
    found = (one._replace(numbers=[n - blocks.start for n in one.numbers if n in blocks]) for one in adapters)
    return tuple(one for one in found if one.numbers)


def stays(step: Step, stage: Stage, times: int) -> Size:
    """Bytes that a stage has all the time: what it receives into, for each of so many microbatches, and the whole
    batch, of which these are parts."""
    received = (not stage.first) + (not stage.last)
    return times * (received * stream(step) + (tokens(step) if stage.first or stage.last else 0))


def returned(step: Step, stage: Stage, flying: int) -> Size:
    """Bytes of what a stage gave on of the microbatches in flight, less those that they keep of what stays."""
    made = logits(step) if stage.last else stream(step)
    first = (section for section in step.run.blocks if section.numbers[0] == 0)
    reads = any(line.path == INPUT.path for section in first for line in step.lines_of(section))
    keeps = any(line.path == TOKENS.path for line in step.run.front.run.kept)  # not where the table is frozen
    kept = (tokens(step) if keeps else 0) if stage.first else stream(step) if reads else 0
    return flying * (made - kept)


def stream(step: Step) -> Size:
    """Bytes that a stage hands on of one microbatch."""
    return step.bytes(step.run.front, (step.input,))


def tokens(step: Step) -> Size:
    """Bytes of one microbatch's tokens, and of their labels."""
    return step.bytes(step.run.front, (TOKENS,))


def logits(step: Step) -> Size:
    """Bytes of what the last stage makes of one microbatch."""
    return step.run.logits.bytes({**step.run.back.axes, **step.at}, step.pass_)


def waits(step: Step) -> int:
    """Bytes that the gradients of one microbatch's weights wait with: what their products read, and the gradients of
    what these made."""
    read = sum(
        section.count * step.bytes(section, (line for line in section.run.kept if _of_weights(line)))
        for section in step.run.sections
    )
    made = sum(group.count * size(group.bound(step.at), axes) for group in step.ledger.groups for axes in _made(group))
    return int(read + step.pass_.bytes(made))


def _of_weights(line: Kept) -> bool:
    return any(name.endswith(".weight") for name in line.by)


def _made(group: Group) -> Iterator[tuple[str, ...]]:
    """Axes of what each weight of a group makes."""
    for line in group.lines:
        if isinstance(line, Matmul) and line.weight_axes() is not None:
            yield line.einsum.out
        elif isinstance(line, Pointwise) and any(True for _ in line.parameters()):
            yield tuple(line.spec.split())
