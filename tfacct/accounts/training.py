"""A training step as a timeline: what is alive at each instant of it, and the instant that decides.

Weights, the optimizer's state, finished gradients, what the forward pass keeps, and what a gradient holds while it is
computed. Blocks run backwards, and the sum is linear in a block's number, so only the first and the last block of a
kind can be the fullest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.groups import Ledger, Tensor
from tfacct.ledger.kept import FULL, ROTARY, Kept, Moment, Pass, Section
from tfacct.ledger.storage import Width

LOSS = FULL
"""Bytes of the loss; its gradient takes as many."""


class Instant(NamedTuple):
    """What is alive at one instant, in bytes. `operation`: whose gradient is computed there."""

    name: str
    operation: str
    weights: Size
    states: Size
    gradients: Size
    kept: Size
    held: Size

    @property
    def total(self) -> Size:
        """Bytes of all together."""
        return self.weights + self.states + self.gradients + self.kept + self.held


class Step(NamedTuple):
    """A training step to account for: the pass, the model's ledger, and how its tensors are stored.

    `states`: bytes that the optimizer keeps. `update`: bytes that it holds while it updates. `checkpoint`: blocks keep
    their inputs alone, and are run again.
    """

    run: Pass
    ledger: Ledger
    at: Axes
    pass_: Width
    states: Size
    update: Size = 0
    checkpoint: bool = False

    def bytes(self, section: Section, lines: Iterable[Kept]) -> Size:
        """Bytes of some lines of one section."""
        return sum(line.bytes({**section.axes, **self.at}, self.pass_) for line in lines)

    @property
    def weights(self) -> Size:
        """Bytes of the parameters, and of the buffers and the batch, which stay as long."""
        stay = self.bytes(self.run.front, self.run.buffers)
        return sum(self.pass_.bytes(t.count * t.elements) for t in self.ledger.tensors()) + stay

    def lines_of(self, section: Section) -> Iterator[Kept]:
        """Tensors that one block of a section keeps, or what stands in front of the blocks or behind them."""
        if self.checkpoint and section.numbers:
            return iter((INPUT,))
        return (line for line in section.run.kept if not self.checkpoint or ROTARY not in line.by)

    def kept_in(self, section: Section) -> Size:
        """Bytes of these."""
        return self.bytes(section, self.lines_of(section))

    @property
    def closures(self) -> Size:
        """Bytes that checkpointed blocks are handed to be run again, which autograd does not see: angles, positions."""
        if not self.checkpoint:
            return 0
        front = self.run.front
        return self.bytes(front, (*(line for line in front.run.kept if ROTARY in line.by), POSITIONS))

    def kept(self) -> Size:
        """Bytes that the whole forward pass keeps."""
        return sum(section.count * self.kept_in(section) for section in self.run.sections)


TOKENS, TABLE = "tokens", "embed"
POSITIONS = Kept("position_ids", "T", by=("again",), role="index")
INPUT = Kept("blocks.*.in", "B T D", by=("again",))
"""All that a checkpointed block keeps."""


def timeline(step: Step) -> list[Instant]:
    """The instants of a step, in their order: the peak is the fullest."""
    weights, states, run = step.weights, step.states, step.run
    gradients = _gradients(step)
    tokens = step.bytes(run.front, [line for line in run.front.run.kept if line.path == TOKENS])
    front_all = step.bytes(run.front, run.front.run.kept)
    table_needs = step.bytes(run.front, [line for line in run.front.run.kept if ROTARY not in line.by])
    front, inside, behind = (
        step.kept_in(run.front),
        [step.kept_in(section) for section in run.blocks],
        step.kept_in(run.back),
    )
    angles, again = front_all - table_needs, step.closures
    before_back = front + sum(section.count * kept for section, kept in zip(run.blocks, inside, strict=True))
    found = [Instant("forward ends", "", weights, states, 0, before_back + behind, again + LOSS)]

    def at(name: str, section: Section, moment: Moment, kept: Size, done: Size) -> Instant:
        alive = step.bytes(section, section.run.alive(moment.at))
        axes = {**section.axes, **step.at}
        held = sum(held.bytes(axes, step.pass_) for held in moment.held)
        finished = done + gradients(section.run.finished(moment), one=True)
        return Instant(name, moment.at, weights, states, finished, kept + alive, held + again + 2 * LOSS)

    found.extend(_forwards(step, front, inside))
    *heads, loss = run.back.run.moments
    found.append(at("loss, backward", run.back, loss, before_back, 0))
    found.append(_fullest(at("head, backward", run.back, moment, before_back, 0) for moment in heads))
    back = gradients(run.back.run.order, one=True)
    stream = step.pass_.bytes(step.at["B"] * step.at["T"] * run.front.axes["D"])
    for number, section in _ends_of_stacks(run):
        earlier = front + sum(
            kept * sum(other < number for other in some.numbers) for some, kept in zip(run.blocks, inside, strict=True)
        )
        later = back + sum(
            gradients(some.run.order, one=True) * sum(other > number for other in some.numbers) for some in run.blocks
        )
        own = step.bytes(section, [INPUT]) if step.checkpoint else 0
        fullest = _fullest(
            at(
                f"block {number:,}, backward",
                section,
                moment,
                earlier + own - (angles if not number and _turned(section, moment) else 0),
                later,
            )
            for moment in section.run.moments
        )
        found.append(fullest._replace(held=fullest.held + stream))
    tied = _tied(step)
    behind = gradients(None) - gradients(run.front.run.order, one=True) + tied
    found.append(
        _fullest(
            found_._replace(held=found_.held - again + (max(stream, tied) if moment.at == TABLE else stream))
            for moment in run.front.run.moments
            for found_ in [at("table, backward", run.front, moment, 0, behind)]
        )
    )
    every = gradients(None)
    found.append(Instant("optimizer step", "", weights, states, every, tokens, step.update))
    return found


def _forwards(step: Step, front: Size, inside: list[Size]) -> Iterator[Instant]:
    """The last block's forward pass at its fullest, and the final norm's."""
    if step.checkpoint:
        return
    run = step.run
    number, last = max((section.numbers[-1], index) for index, section in enumerate(run.blocks))
    section = run.blocks[last]
    before = front + sum(part.count * kept for part, kept in zip(run.blocks, inside, strict=True)) - inside[last]
    waiting = sum(held.bytes({**run.front.axes, **step.at}, step.pass_) for held in run.waiting)

    def at(name: str, where: Section, moment: Moment, kept: Size) -> Instant:
        axes = {**where.axes, **step.at}
        made = step.bytes(where, where.run.made(moment.at))
        held = sum(held.bytes(axes, step.pass_) for held in moment.held)
        return Instant(name, moment.at, step.weights, step.states, 0, kept + made, held + waiting)

    name = f"block {number:,}, forward"
    yield from ([_fullest(at(name, section, moment, before) for moment in section.run.ahead)] if section.run.ahead else [])
    for moment in run.back.run.ahead:
        yield at("final norm, forward", run.back, moment, before + inside[last])


def _turned(section: Section, moment: Moment) -> bool:
    """True if a block needs the angles no more at a moment."""
    order = section.run.order
    return ROTARY in order and order.index(moment.at) < order.index(ROTARY)


def _fullest(instants: Iterable[Instant]) -> Instant:
    return max(instants, key=lambda instant: int(instant.total))


def peak(instants: Iterable[Instant]) -> Instant:
    """The instant that decides, the first of those that are as full."""
    return _fullest(instants)


def _ends_of_stacks(run: Pass) -> Iterator[tuple[int, Section]]:
    """The last and the first block of each kind, backwards; and block 1, the first beside which the angles stay."""
    ends = {number: section for section in run.blocks for number in (section.numbers[0], section.numbers[-1])}
    ends |= {1: section for section in run.blocks if 1 in section.numbers}
    return iter(sorted(ends.items(), key=lambda end: -end[0]))


def _tied(step: Step) -> Size:
    """Bytes of the token table's gradient where the head has made one too."""
    head = any(line.path == "lm_head" and getattr(line, "weight", None) for g in step.ledger.groups for line in g.lines)
    tables = (tensor for tensor in step.ledger.tensors() if tensor.path == "embed.weight")
    return sum(step.pass_.bytes(tensor.elements) for tensor in tables) if head else 0


def _gradients(step: Step) -> Callable[..., Size]:
    """Bytes of the gradients that some operations finish: in `one` block, or of all parameters where none is named."""
    owners: dict[str, Size] = {}
    tied = _tied(step)
    for tensor in step.ledger.tensors():
        for owner in _operations(tensor):
            owners[owner] = owners.get(owner, 0) + step.pass_.bytes(tensor.elements)
    owners["lm_head.weight"] = owners.get("lm_head.weight", 0) + tied
    whole = sum(step.pass_.bytes(tensor.count * tensor.elements) for tensor in step.ledger.tensors())

    def bytes_of(operations: Iterable[str] | None, *, one: bool = False) -> Size:
        if operations is None or not one:
            return whole
        return sum(owners.get(operation, 0) for operation in operations)

    return bytes_of


def _operations(tensor: Tensor) -> tuple[str, ...]:
    """The operation whose backward finishes a parameter's gradient."""
    owner, _, _ = tensor.path.rpartition(".")
    return (owner,) if owner in ("embed", "pos_embed") else (f"{owner}.weight",)
