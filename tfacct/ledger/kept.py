"""Tensors that a forward pass keeps for the backward pass, as lines: a name, axes, the gradients that need it.

A line is read like a product's spec: `Kept("mlp.act", "B T F", by=("mlp.down_proj.weight",))` is a tensor of B · T · F
numbers that the gradient of down_proj's weight needs. Its bytes follow from its role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Literal, NamedTuple, TypeAlias, get_args

from tfacct.base.record import record
from tfacct.ledger.einsum import Axes, Size, elements
from tfacct.ledger.places import Places
from tfacct.ledger.storage import Width

Role: TypeAlias = Literal["work", "full", "upcast", "cast", "copy", "flag", "index", "short", "seed"]
"""Dtype rule of a kept tensor. `work`: the pass's dtype. `full`: fp32 whatever the pass. `upcast`: an fp32 copy of
another tensor, in fp32 that tensor itself. `cast`: a copy in the pass's dtype, in fp32 none. `copy`: a further fp32
copy, in fp32 none. `flag`: a byte, the mask of a dropout. `index`: int64. `short`: int32. `seed`: state of an attention
kernel's random numbers."""

ROTARY, ROTARY_WINDOWED = TURNS = "blocks.*.attn.rotary", "blocks.*.attn.rotary.windowed"
"""The operation of every block that needs the angles; of windowed blocks, where they have angles of their own. Where
each kind of block has its own, those behind the first go by its number."""
AGAIN = "again"
"""A checkpointed block that runs again."""
SHARES = "blocks.*.shares"
"""What values were weighted by in the block in front, where the caller still has it: block 0 has none."""
IN = "blocks.*.in"
"""What a block reads, and all that it keeps if it runs again."""
FULL = 4
"""Bytes of a number in fp32."""
SEED, SEED_FULL = 24, 16
"""Bytes of the seeds that torch's attention kernels keep: three words of the flash kernel, two of the efficient one."""
BYTES: dict[Role, int] = {"full": FULL, "upcast": FULL, "copy": FULL, "flag": 1, "index": 8, "short": 4}


def turns(operation: str) -> bool:
    """True for an operation that needs the angles."""
    return operation.startswith(ROTARY)


def bytes_each(role: Role, pass_: Width) -> int:
    """Bytes of one element of a role in a pass of this dtype; 0 where no tensor is made."""
    return _every(pass_.bits)[role]


@cache
def _every(bits: int) -> Mapping[Role, int]:
    """Bytes of one element of each role in a pass of so many bits."""
    wide = bits == 8 * FULL
    own: dict[Role, int] = {"seed": SEED_FULL if wide else SEED, **({"cast": 0, "copy": 0} if wide else {})}
    return {role: BYTES.get(role, bits // 8) for role in get_args(Role)} | own


def bytes_of(spec: str, role: Role, axes: Axes, pass_: Width) -> Size:
    """Bytes of one tensor of these axes and role."""
    return elements(axes, spec) * bytes_each(role, pass_)


class Sizes(dict[str, Size]):
    """Elements of tensors by their axes, each worked out once, and bytes of one element by its role."""

    def __init__(self, axes: Axes, pass_: Width) -> None:
        self.axes, self.each = axes, _every(pass_.bits)

    def __missing__(self, spec: str) -> Size:
        found = self[spec] = elements(self.axes, spec)
        return found

    def bytes(self, tensor: Held | Kept) -> Size:
        """Bytes of a tensor."""
        return tensor.times * self[tensor.spec] * self.each[tensor.role]

    def all(self, tensors: Iterable[Held | Kept]) -> Size:
        """Bytes of several."""
        each = self.each
        return sum([tensor.times * self[tensor.spec] * each[tensor.role] for tensor in tensors])


@record
class Kept:
    """One tensor that the backward pass needs.

    `path` names the tensor, so one that two parts keep is one line. `by` are the operations whose gradients need it, in
    the order of the forward pass: `….weight` that of a weight, any other name that of an operation's input. `times`:
    how many such tensors there are.

    >>> act = Kept("mlp.act", "B T F", by=("mlp.down_proj.weight",))
    >>> act.elements({"B": 2, "T": 3, "F": 7})
    42
    """

    path: str
    spec: str
    by: tuple[str, ...]
    role: Role = "work"
    times: Size = 1

    def elements(self, axes: Axes) -> Size:
        """Number of elements."""
        return self.times * elements(axes, self.spec)

    def bytes(self, axes: Axes, pass_: Width) -> Size:
        """Bytes in a pass of this dtype."""
        return self.times * bytes_of(self.spec, self.role, axes, pass_)


class Held(NamedTuple):
    """Tensors that live only while an operation runs: `times` of these axes and role.

    One with a `path` is not held where a kept tensor of that name is there.
    """

    spec: str
    role: Role = "work"
    times: int = 1
    path: str = ""

    def bytes(self, axes: Axes, pass_: Width) -> Size:
        """Bytes in a pass of this dtype."""
        return self.times * bytes_of(self.spec, self.role, axes, pass_)


class Moment(NamedTuple):
    """An instant: while the gradient of the operation `at` is computed, or `at` itself, at its fullest.

    `held` are the tensors alive then beside kept ones, finished gradients and the stream's gradient. `done`: the
    gradient of the operation's own weight is among the finished ones. `after`: the operation has read all it needs, so
    that tensors which were made again for it are gone. `alone`: nothing in front of it needs the stream's gradient.
    `again`: the operation that attention has run again up to, what it made anew there beside all else.
    """

    at: str
    held: tuple[Held, ...]
    done: bool = True
    after: bool = False
    alone: bool = False
    again: str = ""


class Cast(NamedTuple):
    """A parameter's cast under autocast, which stays until the forward pass ends: the operation that makes it, and the
    name of the line that keeps it longer, if one does."""

    at: str
    held: Held
    kept: str = ""


class _Run(NamedTuple):
    order: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    moments: tuple[Moment, ...] = ()
    ahead: tuple[Moment, ...] = ()
    early: tuple[Held, ...] = ()
    bare: tuple[Moment, ...] = ()
    remade: tuple[Kept, ...] = ()
    casts: tuple[Cast, ...] | None = None


class Run(_Run):
    """Part of a forward pass: operations in their order, what they keep, the moments of its backward pass.

    `ahead`: moments of the forward pass itself, where it can be fuller than anything later. `early`: what its backward
    pass makes before it needs any kept tensor, and so before a checkpointed block runs again. `bare`: moments of a
    forward pass that keeps nothing, with all that is there, but for casts of weights. `remade`: what attention that
    runs again makes anew, where it does. `casts`: those of parameters, where the run is written out.
    """

    @cached_property
    def places(self) -> Places:
        """The places of its operations, lines and moments."""
        return Places(self)

    @cached_property
    def places_again(self) -> Places:
        """The same where the block's input is there all the time, and nothing of the block in front: of one that runs
        again, and of block 0."""
        return Places(self, IN, SHARES)

    def alive(self, at: str) -> Iterator[Kept]:
        """Lines that are there while `at` runs, forwards or backwards: it or an operation before it needs them."""
        waiting = frozenset(self.order[: self.order.index(at) + 1])
        return (line for line in self.kept if not waiting.isdisjoint(line.by))

    def kept_each(self, each: Mapping[Role, int], *, handed: bool) -> Iterable[tuple[str, Size]]:
        """Bytes of what it keeps for one element, by axes. `each`: of a role. But for what only blocks that run again
        need; or, where blocks are `handed` the angles, but for these."""
        known, key = self._kept_each, (each["work"], handed)
        if key not in known:
            bytes_, elsewhere = dict[str, Size](), frozenset(TURNS if handed else (AGAIN,))
            for line in self.kept:
                if elsewhere.isdisjoint(line.by):
                    bytes_[line.spec] = bytes_.get(line.spec, 0) + line.times * each[line.role]
            known[key] = tuple(bytes_.items())
        return known[key]

    @cached_property
    def _kept_each(self) -> dict[tuple[int, bool], tuple[tuple[str, Size], ...]]:
        return {}

    @cached_property
    def read_first(self) -> dict[str, list[Kept]]:
        """Lines but for the block's input, by the first operation of the forward pass whose gradient needs them."""
        found: dict[str, list[Kept]] = {}
        for line in self.kept:
            if line.path != IN:
                found.setdefault(line.by[0], []).append(line)
        return found

    @cached_property
    def turned(self) -> dict[str, list[Kept]]:
        """Angles, by the operation of blocks that needs them."""
        every = dict.fromkeys(name for line in self.kept for name in line.by if turns(name))
        return {turn: [line for line in self.kept if turn in line.by] for turn in every}

    @cached_property
    def first_read(self) -> int:
        """Place of the first operation that a gradient needs a kept tensor of."""
        return self._first(self.kept)

    @cached_property
    def first_remade(self) -> int:
        """The same of what attention makes anew where it runs again."""
        return self._first(self.remade)

    def _first(self, lines: Iterable[Kept]) -> int:
        needed = frozenset(name for line in lines for name in line.by)
        return next((place for place, name in enumerate(self.order) if name in needed), 0)

    @cached_property
    def last(self) -> int:
        """Place of the last operation that a gradient needs a kept tensor or a weight of: run again, it stops there."""
        needed = frozenset(name for line in self.kept for name in line.by)
        backwards = range(len(self.order) - 1, -1, -1)
        return next(at for at in backwards if self.order[at] in needed or self.order[at].endswith(".weight"))

    def finished(self, moment: Moment) -> tuple[str, ...]:
        """Operations whose gradients are done at a moment: all behind it, and its own if it says so."""
        return self.order[self.order.index(moment.at) + (0 if moment.done else 1) :]


@lru_cache(maxsize=256)
def met(run: Run) -> Run:
    """The first run met that is equal to this one: what follows from its order is known."""
    return run


class Section(NamedTuple):
    """A run, the sizes of its letters, and the blocks that it stands for. `input`: what a block keeps that runs again,
    where it is not what others keep. `adds`: the run of all but the last, where blocks have one set of weights: the
    last makes gradients to which they add."""

    run: Run
    axes: Axes
    count: Size = 1
    numbers: Sequence[int] = ()
    input: Kept | None = None
    adds: Run | None = None

    def apart(self) -> Iterator[Section]:
        """Blocks that make gradients, apart from those that add to them."""
        if self.adds is None:
            yield self
            return
        count, numbers = len(self.numbers) - 1, self.numbers
        yield self._replace(run=self.adds, count=count, numbers=numbers[:-1], adds=None)
        yield self._replace(count=1, numbers=numbers[-1:], adds=None)


class Handed(NamedTuple):
    """A tensor that blocks which run again are handed. It goes when `first`, the first block that has it, is done."""

    held: Held
    first: int = 0


class Collected(NamedTuple):
    """A gradient to which every block adds, from `at` on, an operation of the last block."""

    held: Held
    at: str


class Pass(NamedTuple):
    """A forward pass as its backward pass sees it: what stands in front of the blocks, the blocks, what is behind.

    `buffers`: tensors that stay all the time. `waiting`: what is held while the blocks run forwards, `handed` what
    blocks that are run again are handed. `again`: operations of the blocks that are run again, where not all are.
    `loss`: role of the loss. `logits`: what the loss is taken of. `collected`: gradients to which every block adds.
    `encoder`: the pass of a source, whose tokens are T there; `source`: its sections as they stand beside the others.
    `frozen`: weights that nothing trains. `views`: operations in front whose gradients are views of the stream's, all
    of which stays with them.
    """

    front: Section
    blocks: tuple[Section, ...]
    back: Section
    buffers: tuple[Kept, ...] = ()
    waiting: tuple[Held, ...] = ()
    handed: tuple[Handed, ...] = ()
    again: frozenset[str] = frozenset()
    loss: Role = "full"
    logits: Held = Held("B T V")
    collected: tuple[Collected, ...] = ()
    encoder: Pass | None = None
    source: tuple[Section, ...] = ()
    frozen: frozenset[str] = frozenset()
    views: frozenset[str] = frozenset()

    @property
    def sections(self) -> tuple[Section, ...]:
        """All sections in order."""
        return (*self.source, self.front, *self.blocks, self.back)


def known(whole: Pass) -> Pass:
    """The same pass of runs that were met before, if they were: at another workload most are the same."""
    front, *blocks, back = map(_known, (whole.front, *whole.blocks, whole.back))
    found = whole._replace(front=front, blocks=tuple(blocks), back=back)
    return axes_once(found._replace(encoder=whole.encoder and known(whole.encoder)))


def _known(section: Section) -> Section:
    return section._replace(run=met(section.run), adds=section.adds and met(section.adds))


def axes_once(whole: Pass) -> Pass:
    """The same pass, in which sections with the same axes have one mapping of them."""
    every = [section.axes for section in (whole.front, *whole.blocks, whole.back)]
    axes = iter([every[every.index(own)] for own in every])
    front, *blocks, back = (each._replace(axes=next(axes)) for each in (whole.front, *whole.blocks, whole.back))
    return whole._replace(front=front, blocks=tuple(blocks), back=back)


def joined(*runs: Run) -> Run:
    """One run after the other. A tensor that both keep is one line, which the gradients of both need."""
    lines: dict[str, Kept] = {}
    for line in (line for run in runs for line in run.kept):
        known = lines.get(line.path)
        every = line.by if known is None else (*known.by, *line.by)
        by = tuple(dict.fromkeys(every))
        lines[line.path] = line if by == line.by else Kept(line.path, line.spec, by, line.role, line.times)
    order = tuple(name for run in runs for name in run.order)
    moments = tuple(moment for run in runs for moment in run.moments)
    early = next((run.early for run in reversed(runs) if run.kept), ())
    ahead, bare = (tuple(moment for run in runs for moment in getattr(run, name)) for name in ("ahead", "bare"))
    return Run(order, tuple(lines.values()), moments, ahead, early, bare)
