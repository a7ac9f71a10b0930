"""A block of a class written out: its operations one after the other, as torch runs them, and what is there meanwhile.

Its tensors are Python's own: one is there as long as a variable or an operation that saved it refers to it, as in the
class. Run backwards, each operation hands gradients to those that made what it read, which are added up where several
come. What results is a run: lines of what is kept, and all that is there beside them at any moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tfacct.ledger.kept import Role
from tfacct.profiles.written_storage import Axes, Joint, Kind, Storage, spec_of

R = TypeVar("R")
STREAM: Axes = ("B", "T", "D")
INPUT = "blocks.*.in"


Back: TypeAlias = Callable[["Trace", Storage], Sequence["Storage | None"]]


class Node:
    """An operation that gradients go through: what it saved, and the operations that made what it read. `at`: the last
    one with a name. `after`: where its gradients are added up, the angles that it needs are gone."""

    __slots__ = ("after", "at", "back", "frame", "inputs", "saved", "unpacks")

    def __init__(self, at: str, inputs: Iterable[Node | None], back: Back) -> None:
        self.at, self.inputs, self.back = at, tuple(inputs), back
        self.saved: list[Storage] = []
        self.unpacks = self.after = False
        self.frame: Frame | None = None  # what saves its tensors once it runs again


class Frame:
    """A stretch that runs again: what it reads, its operations by their places, and how many tensors they save."""

    __slots__ = ("flows", "made", "places", "reads", "run", "saves")

    def __init__(self, reads: Value, run: Callable[[Trace, Value], Any], places: tuple[int, int], saves: int) -> None:
        self.reads, self.flows = reads.viewed(reads.axes), reads.node is not None
        self.reads.node = None
        self.run, self.places, self.saves, self.made = run, places, saves, False


class EnoughError(Exception):
    """All that a stretch saves is there again."""


class Value:
    """What a variable refers to: a tensor, its axes, and the operation that made it, none where it needs no gradient.
    Axes that are not among those in memory have a stride of 0."""

    __slots__ = ("axes", "node", "storage")

    def __init__(self, storage: Storage, axes: Axes, node: Node | None) -> None:
        self.storage, self.axes, self.node = storage, axes, node

    @property
    def role(self) -> Role:
        """Dtype rule."""
        return self.storage.role

    def viewed(self, axes: Axes) -> Value:
        """The same with its axes in another order."""
        return Value(self.storage, axes, self.node)


class Seen(NamedTuple):
    """All that is there at an instant."""

    at: str
    done: bool
    after: bool
    there: dict[Kind, int]


class Trace:
    """Operations as they run. `ones`: axes of size 1. `keeps`: operations save what their gradients need; a block that
    will run again saves nothing. `flows`: what it reads requires a gradient. `leaf`: no operation made that, so its
    cast is made once, and stays until the forward pass ends, as a weight's does. `plain`: weights are in the pass's
    dtype, as what it reads is: that goes with the last that refers to it. `full`: that dtype is fp32."""

    def __init__(
        self,
        ones: frozenset[str],
        *,
        keeps: bool = True,
        flows: bool = True,
        leaf: bool = False,
        reads: str = INPUT,
        plain: bool = False,
        full: bool = False,
    ) -> None:
        self.ones, self.keeps, self.leaf, self.plain, self.full = ones, keeps, leaf, plain, full
        self.narrow: Value | None = None  # the cast of a leaf
        self.there: Counter[Kind] = Counter()
        self.elsewhere: Counter[Kind] = Counter()
        self.order: list[str] = []
        self.nodes: list[Node] = []
        self.lines: dict[str, tuple[Kind, list[str]]] = {}
        self.casts: list[tuple[str, Kind, str]] = []
        self.remade: dict[str, tuple[Kind, list[str]]] = {}
        self.again: list[str] = []
        self.cache: list[Storage] | None = None  # of casts, in a stretch that runs again
        self.saves, self.most = 0, -1
        self.rounds = ""  # letter of how many rounds of a loop one stands for
        self.fixed: Seen | None = None
        self.forwards: list[Seen] = []
        self.backwards: list[Seen] = []
        self.early: dict[Kind, int] | None = None
        self.at, self.done, self.after = "", True, False
        self.enters = Node("", (), lambda _t, _g: ())
        self.running = self.enters
        self.seen = self.forwards
        stream = Storage(self.there, STREAM, "work", reads) if plain else Storage(self.elsewhere, STREAM, "full", reads)
        self.start = Value(stream, STREAM, self.enters if flows else None)

    # Forwards.

    def named(self, name: str) -> None:
        """Begin an operation with a name."""
        if name not in self.order:
            self.order.append(name)
        self.at, self.after = name, False

    def new(self, laid: Axes, role: Role = "work", path: str = "", line: Axes = ()) -> Storage:
        """A further tensor. `line`: the axes of the line that says that it is kept, among others."""
        own: Role = "work" if self.full and role == "full" else role
        made = Storage(self.there, laid, own, path, times=self.rounds, line=line)
        self.record()
        return made

    def joint(self, parts: Iterable[tuple[Axes, str]], laid: Axes, role: Role = "work") -> Joint:
        """A further tensor of several parts, by their axes and names."""
        made = Joint(tuple(Storage(self.there, axes, role, path) for axes, path in parts), laid)
        self.record()
        return made

    def like(self, storage: Storage, laid: Axes, role: Role) -> Storage:
        """A further tensor with the numbers of another."""
        if not isinstance(storage, Joint):
            return self.new(laid, role)
        parts = (Storage(self.there, part.laid, role, sign=part.sign) for part in storage.parts)
        made = Joint(tuple(parts), laid)
        self.record()
        return made

    def elsewhere_new(self, laid: Axes, role: Role = "work", path: str = "") -> Storage:
        """One that is accounted for elsewhere: a parameter, a cast of one, the angles."""
        return Storage(self.elsewhere, laid, role, path)

    def node(self, inputs: Iterable[Node | None], back: Back) -> Node | None:
        """An operation; none where nothing that it reads requires a gradient."""
        inputs = tuple(inputs)
        if all(each is None for each in inputs):
            return None
        made = Node(self.at, inputs, back)
        self.nodes.append(made)
        return made

    def save(self, node: Node | None, *saved: Storage | None) -> None:
        """Save tensors for an operation's gradients; None stands for a parameter."""
        if node is None:
            return
        node.unpacks = True
        self.saves += len(saved)
        for each in (part for whole in saved if whole is not None for part in whole.parts):
            if not each.path:
                continue
            if self.keeps:
                node.saved.append(each)
            by = self.lines.setdefault(each.path, (each.line, []))[1]
            if self.at not in by:
                by.append(self.at)
        if self.saves == self.most:
            raise EnoughError

    def record(self) -> None:
        """Write down what is there."""
        there = {kind: count for kind, count in self.there.items() if count}
        at, done, after, _ = self.fixed or (self.at, self.done, self.after, None)
        self.seen.append(Seen(at, done, after, there))

    def rerun(self, x: Value, run: Callable[[Trace, Value], R]) -> R:
        """Run a stretch that runs again in the backward pass: it saves nothing but what it reads."""
        if not self.keeps:
            return run(self, x)
        start, saves, lines, named = len(self.nodes), self.saves, self.lines, len(self.order)
        self.keeps, self.lines = False, self.remade
        result = run(self, x)
        self.keeps, self.lines = True, lines
        self.again += self.order[named:]
        frame = Frame(x, run, (start, len(self.nodes)), self.saves - saves)
        inside = [node for node in self.nodes[start:] if node.unpacks]
        for node in inside:
            node.frame = frame
        if inside:
            self.lines.setdefault(x.storage.path, (x.storage.kind, []))[1].append(inside[0].at)
        return result

    # Backwards.

    def let_go(self) -> None:
        """An operation is over but for what is summed of its gradients: what was made again for it is gone."""
        if self.running.frame is not None:
            self.running.saved = []

    def gradient(self) -> None:
        """A parameter's gradient is there: with it the operation is done."""
        self.done = True
        self.record()

    def beside(self, axes: Iterable[str], laid: Axes) -> bool:
        """True if axes lie beside each other in this order; those of size 1 lie anywhere."""
        wanted = [axis for axis in axes if axis not in self.ones]
        there = [axis for axis in laid if axis not in self.ones]
        if len(wanted) < 2:
            return True
        if any(axis not in there for axis in wanted):
            return all(axis not in there for axis in wanted)
        start = there.index(wanted[0])
        return there[start : start + len(wanted)] == wanted

    def merged(self, grad: Storage, *groups: Axes) -> Storage:
        """A tensor with the axes of each group as one: a view, or a copy."""
        if all(self.beside(group, grad.laid) for group in groups):
            return grad
        return self.like(grad, tuple(axis for group in groups for axis in group), grad.role)

    def backward(self, result: Node | None, axes: Axes = STREAM, role: Role = "full") -> None:
        """Run backwards from a gradient of what an operation made."""
        waiting: dict[Node | None, Storage] = {result: Storage(self.there, axes, role)}
        self._backward(waiting, (spec_of(axes), role))

    def _backward(self, waiting: dict[Node | None, Storage], kind: Kind | None) -> None:
        self.seen = self.backwards
        for node in reversed(self.nodes):
            if node not in waiting:
                continue
            self.at, self.done, self.after = node.at, not owns(node.at), False
            if node.unpacks and self.early is None:
                self.early = self._unsaved(kind)
            if node.frame is not None and not node.frame.made:
                self._again(node.frame)
            given = self._given(node, waiting.pop(node))
            self.done, self.after = True, node.after
            for source, grad in zip(node.inputs, given, strict=True):
                if source is not None and grad is not None and source is not LEAF:
                    self._deliver(waiting, source, grad)
            del given, grad
        waiting.clear()

    def backward_of_part(self, result: Node | None, *, apart: bool) -> None:
        """Run backwards from the gradient of a part's result: the stream's, which is counted elsewhere, unless it is a
        tensor `apart`."""
        there = self.there if apart else self.elsewhere
        self._backward({result: Storage(there, STREAM, "work")}, (spec_of(STREAM), "work") if apart else None)

    def backward_of_loss(self, loss: Node | None) -> None:
        """Run backwards from the loss, whose own gradient is counted elsewhere."""
        self._backward({loss: Storage(self.elsewhere, (), "full")}, ("", "full"))

    def _given(self, node: Node, grad: Storage) -> list[Storage | None]:
        self.running = node
        given = list(node.back(self, grad))
        node.saved, node.frame = [], None
        return given

    def _again(self, frame: Frame) -> None:
        """Run a stretch again, until all that it saves is there."""
        other = Trace(self.ones)
        other.there, other.seen, other.cache = self.there, self.backwards, []
        other.fixed, other.most = Seen(self.at, self.done, self.after, {}), frame.saves
        reads = frame.reads.viewed(frame.reads.axes)
        reads.node = other.enters if frame.flows else None
        with suppress(EnoughError):
            frame.run(other, reads)
        frame.made = True
        for node, one in zip(self.nodes[slice(*frame.places)], other.nodes, strict=False):
            node.saved = one.saved

    def _deliver(self, waiting: dict[Node | None, Storage], node: Node, grad: Storage) -> None:
        """Hand a gradient on; where one is there, their sum takes its place."""
        known = waiting.get(node, grad if node is GATHERS else None)
        found = grad if known is None else self.like(known, known.laid, known.role)
        if node is not GATHERS:
            waiting[node] = found

    def _unsaved(self, stream: Kind | None) -> dict[Kind, int]:
        """What is there and not saved, beside the stream's gradient."""
        saved = {id(each): each for node in self.nodes for each in node.saved if each.there is self.there}
        there = Counter(self.there)
        there.subtract([] if stream is None else [stream])
        for each in saved.values():
            there[each.kind] -= each.sign
        return {kind: count for kind, count in there.items() if count}


def owns(name: str) -> bool:
    """True if an operation finishes a parameter's gradient."""
    return name.endswith((".weight", ".bias"))


LEAF, GATHERS = (Node("", (), lambda _t, _g: ()) for _ in range(2))
"""A parameter that is trained; what made a tensor that all blocks read, of whose gradients the sum so far is counted
elsewhere."""
