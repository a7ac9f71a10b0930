"""A training step: its pass, its weights, and the bytes that it keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from tfacct.accounts.sharding.shards import corrects
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.kept import AGAIN, IN, TURNS, Kept, Pass, Section, Sizes
from tfacct.ledger.storage import Width

TABLE = "embed.weight"
ENDS = -1
"""Stands for the number of a block where there is none: in front of the blocks, and behind."""


def kind_of(numbers: Sequence[int]) -> int:
    """A kind of block, by its first: no other kind has it."""
    return numbers[0] if numbers else ENDS


class Adapter(NamedTuple):
    """A weight of an adapter in each of some blocks, which alone are trained where there are any: `bytes` of one."""

    path: str
    elements: Size
    bytes: Size
    numbers: Sequence[int]

    @property
    def copies(self) -> int:
        """How many there are."""
        return len(self.numbers)


class Gradient(NamedTuple):
    """The gradient of a weight: the first block of its kind, the weight, the bytes of one, and how many there are."""

    kind: int
    path: str
    bytes: Size
    copies: Size


class Angles(NamedTuple):
    """Angles: the operation that needs them, their bytes, and the first block that does, with which they go. `early`:
    bytes of those that it has done with first: the sines."""

    turn: str
    bytes: Size
    first: int
    early: Size


class Beside(NamedTuple):
    """What blocks are handed beside the stream: angles, and bytes of other tensors, each with the first block that has
    it."""

    angles: tuple[Angles, ...]
    others: Sequence[tuple[Size, int]]


class Apart(NamedTuple):
    """Experts of a block that fewer ranks share than the rest of it: elements that one stores, and how many do; one
    alone gathers nothing."""

    elements: int = 0
    ranks: int = 1


class Units(NamedTuple):
    """Weights that `ranks` ranks share and gather unit by unit, as fully_shard does: elements that the fullest rank
    stores, padding included, of a block by the first of its kind, of what is in no block, and of all. `stored`: their
    dtype, that of the gradients once they are scattered, and of the optimizer's state. `gathers`: the weights are
    shared too. `accumulates`: scattered gradients of earlier batches are there. `apart`: experts that other ranks
    share, by the first block of a kind. `lent`: bytes of the adapters of a block on the fullest rank, by the first of a
    section, where they alone are trained. `last`: elements of the last parameter of a block,
    and of what is in no block, on all ranks. `copied`: gradients are summed among copies too. `source`: elements of the
    blocks of an encoder in front of a decoder, as `blocks` are."""

    ranks: int
    stored: Width
    blocks: Mapping[int, int]
    root: int
    whole: int
    gathers: bool = True
    accumulates: bool = False
    apart: tuple[tuple[int, Apart], ...] = ()
    lent: Mapping[int, int] | None = None
    last: Mapping[int, int] = {}
    copied: bool = False
    source: Mapping[int, int] = {}

    def experts(self, kind: int) -> Apart:
        """Experts of a kind of block that other ranks share."""
        return dict(self.apart).get(kind, Apart())


class InFlight(NamedTuple):
    """What a stage of a pipeline has beside the microbatch that runs: `passes` in flight, its own among them, and how
    many of each. `first`: its first block's number in the model.
    `waiting`: bytes that gradients of weights still wait with. `weights`, `gradients`: bytes of the rank's other
    stages, once they are there. `rank`: its number. `stays`: bytes that are there all the time, `returned` those of
    what stages gave on and back, but for the logits of the one that runs; `forwards` come to these in a forward pass.
    `received`: the gradient of the last block's result is among what stays. `gathers`: it is the first microbatch, in
    whose forward pass the weights that ranks share are gathered."""

    passes: tuple[tuple[Pass, int], ...]
    first: int = 0
    waiting: Size = 0
    weights: Size = 0
    gradients: Size = 0
    rank: int = 0
    stays: Size = 0
    returned: Size = 0
    forwards: Size = 0
    received: bool = False
    gathers: bool = False


class Step(NamedTuple):
    """A training step to account for: the pass, the model's ledger, and how its tensors are stored.

    `states`: bytes that the optimizer keeps. `update`: bytes that it holds while it updates. `checkpoint`: blocks keep
    their inputs alone, and are run again. `accumulate`: the gradients of earlier batches are there. `holds_logits`: the
    caller keeps the logits. `unsure`: how many bytes less it may hold while it updates, by the order of the parameters.
    `adapters` are trained in place of the model's own weights, where there are any; `frozen` are the bytes of these,
    where they are not stored as the pass is. `wide`: the dtype of weights, gradients and the stream under autocast,
    where it is not the pass's. `kept_input`: what a checkpointed block keeps, where that is a part of its input.
    `units`: the weights, where ranks share them. `buckets`: bytes that gradients are reduced in. `stage`: that of
    a pipeline, whose pass it is. `rows`: those of the table that other ranks have, of which this one makes the gradient
    too, and its own. `side`: the side whose gradients are counted, of a model of two. `master_weights`: their bytes,
    which are among the states.
    """

    run: Pass
    ledger: Ledger
    at: Axes
    pass_: Width
    states: Size
    update: Size = 0
    checkpoint: bool = False
    accumulate: bool = False
    holds_logits: bool = False
    unsure: Size = 0
    adapters: tuple[Adapter, ...] = ()
    frozen: Size | None = None
    wide: Width | None = None
    kept_input: Kept | None = None
    units: Units | None = None
    buckets: Size = 0
    stage: InFlight | None = None
    rows: tuple[int, int] = (0, 1)
    side: Literal["", "encoder", "decoder"] = ""
    master_weights: Size = 0

    @property
    def stored(self) -> Width:
        """Dtype of the weights, the gradients and the stream."""
        return self.wide or self.pass_

    @property
    def input(self) -> Kept:
        """All that a checkpointed block keeps."""
        return self.kept_input or self.whole_input

    @property
    def whole_input(self) -> Kept:
        """What a block reads."""
        return INPUT if self.wide is None else WIDE_INPUT

    @property
    def hands(self) -> bool:
        """True if something is run again, and is handed tensors for that."""
        return self.checkpoint or bool(self.run.again)

    def sizes(self, section: Section) -> Sizes:
        """Bytes of the tensors of one section."""
        return Sizes({**section.axes, **self.at}, self.pass_)

    def bytes(self, section: Section, lines: Iterable[Kept]) -> Size:
        """Bytes of some lines of one section."""
        return self.sizes(section).all(lines)

    @property
    def weights(self) -> Size:
        """Bytes of the parameters, and of the buffers and the batch, which stay as long."""
        return self.parameters + self.bytes(self.run.front, self.run.buffers)

    @property
    def parameters(self) -> Size:
        """Bytes of the parameters, those of adapters among them; of one rank, where ranks share them."""
        if self.units is not None and self.units.gathers:
            return self.units.stored.bytes(self.units.whole) + (self.adapter_bytes if self.adapters else 0)
        if self.frozen is not None:
            return self.frozen + self.adapter_bytes
        own = self.stored.bytes(self._elements)
        return own + self.adapter_bytes + (0 if self.stage is None else self.stage.weights)

    @property
    def _elements(self) -> Size:
        """Number of elements of all stored tensors."""
        known = self.ledger.known
        if Step not in known:
            known[Step] = sum([tensor.count * tensor.elements for tensor in self.ledger.tensors()])
        found: Size = known[Step]
        return found

    @property
    def adapter_bytes(self) -> Size:
        """Bytes of the adapters' parameters; of one rank, where ranks share them."""
        if self.units is not None and self.units.lent is not None:
            lent = self.units.lent
            return sum(section.count * lent[section.numbers[0]] for section in self.run.blocks)
        return sum(adapter.copies * adapter.bytes for adapter in self.adapters)

    def gradients(self) -> Iterator[Gradient]:
        """Gradients of what is trained."""
        if self.adapters:
            for adapter in self.adapters:
                for section in self.run.blocks:
                    if section.numbers[0] in adapter.numbers:
                        yield Gradient(section.numbers[0], adapter.path, adapter.bytes, section.count)
            return
        kinds = {
            id(group.axes): kind_of(group.numbers[-1:] if group.once else group.numbers) for group in self.ledger.groups
        }
        stored, side, frozen = self.stored, self.side, self.run.frozen
        for tensor in self.ledger.tensors():
            path = tensor.path
            if side:
                shared = path == TABLE and side == paths.ENCODER and self.shares_table()
                of_source = bool(paths.parse(path).side) or shared
                if of_source != (side == paths.ENCODER):
                    continue
                path = path.removeprefix(f"{paths.ENCODER}.")
                if path in frozen:
                    continue
            if corrects(path):
                continue
            yield Gradient(kinds[id(tensor.axes)], path, stored.bytes(tensor.elements), tensor.count)

    def shares_table(self) -> bool:
        """True if both sides have one table."""
        return all(tensor.path != paths.in_encoder(TABLE) for tensor in self.ledger.tensors())

    def lines_of(self, section: Section) -> Iterator[Kept]:
        """Tensors that one block of a section keeps, or what stands in front of the blocks or behind them."""
        if self.checkpoint and section.numbers:
            return iter((section.input or self.input,))
        elsewhere = frozenset(TURNS if self.hands else (AGAIN,))
        return (line for line in section.run.kept if elsewhere.isdisjoint(line.by))

    def kept_in(self, section: Section, sizes: Sizes | None = None) -> Size:
        """Bytes of these. `sizes`: of its tensors, where they are known."""
        if sizes is None:
            sizes = self.sizes(section)
        if self.checkpoint and section.numbers:
            return sizes.bytes(section.input or self.input)
        kept = section.run.kept_each(sizes.each, handed=self.hands)
        return sum([bytes_ * sizes[spec] for spec, bytes_ in kept])

    def closures(self, block: int | None = None, known: Beside | None = None) -> Size:
        """Bytes that checkpointed blocks are handed to be run again, which autograd does not see: angles, positions,
        masks. With `block`: those still there while it runs backwards. `known`: what they are handed, if it is."""
        if not self.hands:
            return 0
        angles, others = known or self.handed(self.sizes(self.run.front))
        if block is None:
            return sum([each.bytes for each in angles]) + sum([bytes_ for bytes_, _ in others])
        # The only ones are handed to blocks that do not turn too; behind block 0 they are gone.
        alone = len(angles) == 1 and block >= 0
        there = sum([each.bytes for each in angles if alone or each.first <= block])
        return there + sum([bytes_ for bytes_, first in others if first <= block])

    def handed(self, sizes: Sizes) -> Beside:
        """What blocks are handed beside the stream, of tensors of these sizes."""
        others = [(sizes.bytes(held), first) for held, first in self.run.handed]
        return Beside(tuple(self._angles(sizes)), others)

    def _angles(self, sizes: Sizes) -> Iterator[Angles]:
        """The angles that blocks turn queries and keys by."""
        for turn, lines in self.run.front.run.turned.items():
            first = [part.numbers[0] for part in self.run.blocks if part.numbers and turn in part.run.places.of]
            if first:
                both = sizes.all(lines)
                yield Angles(turn, both, min(first), both // 2)

    def kept(self) -> Size:
        """Bytes that the whole forward pass keeps, and those of other microbatches that are in flight."""
        waits = 0 if self.stage is None else self.stage.waiting
        return waits + sum(times * self.kept_of(run) for run, times in self.passes)

    def kept_of(self, run: Pass) -> Size:
        """Bytes that one pass keeps."""
        sections = run.sections
        sizes = {axes: self.sizes(section) for axes, section in {id(each.axes): each for each in sections}.items()}
        return sum([each.count * self.kept_in(each, sizes[id(each.axes)]) for each in sections])

    @property
    def passes(self) -> tuple[tuple[Pass, int], ...]:
        """Passes whose backward pass is still to come, and how many there are of each."""
        return ((self.run, 1),) if self.stage is None else self.stage.passes

    def beside(self, own: Size) -> Size:
        """Bytes kept by microbatches in flight other than the one that runs, which keeps `own` and what it is
        handed."""
        if self.stage is None:
            return 0
        kept = sum([times * (own if run is self.run else self._whole(run)) for run, times in self.passes])
        return self.stage.waiting + kept - own

    def _whole(self, run: Pass) -> Size:
        return self.kept_of(run) + self._replace(run=run).closures()


INPUT = Kept(IN, "B T D", by=(AGAIN,))
WIDE_INPUT = Kept(IN, "B T D", by=(AGAIN,), role="full")
"""All that a checkpointed block keeps, and the same of a stream in fp32."""
