"""The reference model's step over shapes alone: the bytes that are alive while its own code runs, without torch.

Of many blocks in which the same few come again and again, some rounds run: the others hold as much as these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from tfacct.architecture.blocks import Stack, numbered
from tfacct.architecture.transformer import Transformer
from tfacct.shapes.dtypes import BF16, FP32
from tfacct.shapes.eager import Meter, Tensor
from tfacct.shapes.standing import Loader
from tfacct.shapes.tensors import counted, meter, run_backward

DTYPES = {"bf16": BF16, "fp16": BF16, "fp32": FP32}
FRONT, BLOCKS, HEAD, LOSS, END, ENCODER = "table", "blocks", "head", "loss", "end", "encoder"
"""Parts of a step: what stands in front of the blocks and behind, the loss, the end of the forward pass, a source."""
BEHIND = ("hc_head", "merged", "final_norm", "lm_head", "pooler", "merger", "deepstack", "classifier")
"""Modules behind the blocks."""
MTP = "mtp"
"""Heads of further tokens."""
LONGEST = 16
"""Blocks of a round at most."""


class Place(NamedTuple):
    """A part of a step, and of blocks the number of one."""

    backwards: bool
    part: str
    number: int | None = None


class Fullest(NamedTuple):
    """The most bytes while a part of the model runs: all, and of these those of gradients and of kept tensors."""

    bytes: int
    gradients: int
    kept: int


class Rounds(NamedTuple):
    """Rounds of equal blocks: the first block of those that are left out, how many of a round, rounds left out."""

    first: int
    each: int
    times: int


class _Step(Meter):
    """A meter that knows, place by place, when it was fullest, and what was there when each place was left."""

    def __init__(self) -> None:
        self.at: Any = None
        self.left: dict[tuple[bool, Any], Fullest] = {}
        self.until, self.stays = dict[Any, int](), dict[Any, int]()
        self.now = self.finished = self.kept = 0
        self.backwards, self.made = False, []
        super().__init__()
        self.found: dict[tuple[bool, Any], tuple[int, int, int, int]] = {}
        self.own = dict[int, int]()

    @property
    def place(self) -> Any:
        """What runs."""
        return self.at

    @place.setter
    def place(self, at: Any) -> None:
        again = at == (FRONT, None) and not self.backwards and self.at is not None and self.at[0] in (BLOCKS, HEAD)
        if at != self.at and not again:  # heads of further tokens read the table again
            self.left[self.backwards, self.at] = Fullest(self.now, self.finished, self.kept)
            if self.made is not None:
                self.until[self.at] = len(self.made)
            self.at = at

    def record(self) -> None:
        at = self.backwards, self.at
        if at not in self.found or self.now > self.found[at][0]:
            self.found[at] = self.now, self.finished, self.kept, len(self.made or ())

    def ends(self) -> None:
        """The forward pass ends: what is alive is kept from now on. What of that was there where each part was
        fullest."""
        there = [(born, one) for born, each in enumerate(self.made or ()) if (one := each()) is not None]
        for _, one in there:
            one.kept = True
        self.kept = sum(one.bytes for _, one in there)
        self.made = None
        first = 0
        for at, last in self.until.items():
            self.stays[at] = sum(one.bytes for born, one in there if first <= born < last)
            first = last
        for at, (now, done, _, last) in self.found.items():
            self.found[at] = now, done, sum(one.bytes for born, one in there if born < last), 0


@cache
def loader() -> Loader:
    """The reference model's modules, run over shapes."""
    return Loader("tfacct.reference.", rounds=lambda count: meter().rounds(count))


def model() -> ModuleType:
    """The module of the whole model."""
    return loader().load("tfacct.reference.model")


def run(shape: Transformer, dtype: str, batch: int, tokens: int, source: int = 0) -> dict[Place, Fullest]:
    """Where each part of a model is fullest, forwards and backwards."""
    rounds = _rounds(shape)
    if rounds is not None:
        step = _ran(_without(shape, rounds), dtype, batch, tokens, source)
        found = _with(step, rounds)
        if found is not None:
            return found
    return _places(_ran(shape, dtype, batch, tokens, source).found)


def _ran(shape: Transformer, dtype: str, batch: int, tokens: int, source: int) -> _Step:
    made, step, of = model(), _Step(), DTYPES[dtype]
    with counted(step):
        whole: Any = made.build(shape, dtype=of)
        given = made.inputs(
            shape, batch=batch, tokens=tokens, context=tokens, dtype=of, source=source, new_source=source
        )
        _placed(whole)
        step.own = _own(whole)
        step.found.clear()
        step.made = []
        step.place = FRONT, None
        results = whole.forward(*given.all)[0]
        step.place = LOSS, None
        loss = results.float().mean()
        del results
        step.ends()
        step.place = END, None
        step.record()
        step.backwards = True
        step.place = LOSS, None
        run_backward(step, loss)
        step.place = END, None
        step.record()
    return step


def _placed(whole: Any) -> None:
    """Say of each module at the ends, and of each block, which part of a step it is."""
    for name, module in whole.named_modules():
        first, _, rest = name.partition(".")
        side, _, number = rest.partition(".") if first == ENCODER else (first, "", rest)
        whose = ENCODER if first == ENCODER else BLOCKS
        if side == BLOCKS and number.isdigit():
            module.place = whose, int(number)
        elif first == MTP:
            module.place = HEAD, None
        elif side and side != BLOCKS and not number:
            module.place = (ENCODER if whose == ENCODER else HEAD if side in BEHIND else FRONT), None


def _own(whole: Any) -> dict[int, int]:
    """Bytes of what each block alone has, by its number: weights, and tensors that are none."""
    known, found = set[int](), dict[int, int]()
    for number, block in enumerate(whole.blocks):
        found[number] = 0
        for module in block.modules():
            for own in vars(module).values():
                tensor = getattr(own, "frequencies", own)
                if isinstance(tensor, Tensor) and id(tensor.storage) not in known:
                    known.add(id(tensor.storage))
                    found[number] += tensor.storage.bytes
    return found


def _places(found: Mapping[tuple[bool, Any], tuple[int, int, int, int]]) -> dict[Place, Fullest]:
    return {Place(way, *place): Fullest(*most[:3]) for (way, place), most in found.items()}


# Rounds.


def _rounds(shape: Transformer) -> Rounds | None:
    """The rounds of a model that need not run; None where there are none. Two are left in front of them, and two
    behind: those at the ends may be apart, and the others say what one adds."""
    kinds = _kinds(shape)
    best = Rounds(0, 1, 0)
    for each in range(1, LONGEST + 1) if shape.deepstack is None else ():
        start = 0
        for at in range(len(kinds) - each + 1):
            if at == len(kinds) - each or kinds[at] != kinds[at + each]:
                there = (at + each - start) // each - 4
                if there * each > best.each * best.times:
                    best = Rounds(start + 2 * each, each, there)
                start = at + 1
    return best if best.times else None


def _kinds(shape: Transformer) -> list[int]:
    """The kind of each block, in their order."""
    placed = {number: kind for kind, own in enumerate(numbered(shape.stacks)) for number in own}
    return [placed[number] for number in sorted(placed)]


def _without(shape: Transformer, rounds: Rounds) -> Transformer:
    """The model without those rounds."""
    first, last = rounds.first, rounds.first + rounds.each * rounds.times
    stacks = list[Stack]()
    for stack, own in zip(shape.stacks, numbered(shape.stacks), strict=True):
        left = tuple(at if at < first else at - last + first for at in own if not first <= at < last)
        stacks.append(replace(stack, count=len(left), numbers=left))
    return replace(shape, stacks=tuple(stacks))


def _with(step: _Step, rounds: Rounds) -> dict[Place, Fullest] | None:
    """Where each part of the whole model is fullest; None where a round in front of those that were left out does not
    add what one behind them does."""
    first, each, times = rounds
    forwards, backwards = ([*_added(step, rounds, way)] for way in (False, True))
    if forwards[0] != forwards[1] or backwards[0] != backwards[1]:
        return None
    ahead, behind, of = forwards[0], backwards[0], range(first, first + each)
    weights = sum(step.own[number] for number in of)
    inside = weights + ahead.bytes
    outside = weights + sum(step.stays[BLOCKS, number] for number in of)  # the caller has no states any more
    found = dict[Place, Fullest]()
    for at, most in _places(step.found).items():
        late = at.part == BLOCKS and (at.number or 0) >= first
        early = at.part in (FRONT, ENCODER) or (at.part == BLOCKS and not late)
        more = Fullest(weights, 0, 0)
        if at.backwards and (early or at.part == END):
            more = Fullest(outside + behind.bytes, behind.gradients, outside - weights + behind.kept)
        elif not early:
            more = Fullest(outside if at.backwards or at.part in (LOSS, END) else inside, 0, outside - weights)
        place = at._replace(number=at.number + each * times) if late and at.number is not None else at
        found[place] = Fullest(*(own + times * one for own, one in zip(most, more, strict=True)))
    return found


def _added(step: _Step, rounds: Rounds, backwards: bool) -> Iterator[Fullest]:
    """What the rounds in front of those that were left out, and behind them, add to what is there."""
    for last in (rounds.first - 1, rounds.first + rounds.each - 1):
        ends = last - rounds.each, last
        if backwards:
            ends = last + 1, last - rounds.each + 1
        one, other = (step.left[backwards, (BLOCKS, number)] for number in ends)
        yield Fullest(*(there - was for there, was in zip(other, one, strict=True)))
