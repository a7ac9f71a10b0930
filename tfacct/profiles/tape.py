"""A tape of operations, and what their gradients hold: torch's autograd over the names of axes.

The operations of a pass are written down in their order; run backwards, each hands gradients to those that made what it
read. A gradient is a tensor of its own, a view of another, or the sum of two, and goes once it is handed on. Where a
view needs its axes beside each other and they do not lie so, it is a copy, as in torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tfacct.ledger.kept import Held, Moment, Role

Axes: TypeAlias = tuple[str, ...]
Kind: TypeAlias = tuple[str, Role]
NARROWED = "|"
"""Stands between axes of a view that is a part of each vector of another: they do not lie beside each other."""


BYTES: Role = "flag"
"""Role of what is counted by the byte, without axes."""


@dataclass(eq=False)
class Storage:
    """A tensor in memory, by its axes and dtype rule."""

    spec: str
    role: Role


class Grad(NamedTuple):
    """A gradient: where it lies, and its axes in the order in which they do."""

    storage: Storage
    laid: Axes


Backward: TypeAlias = Callable[["Tape", Grad], None]


@dataclass(eq=False)
class Node:
    """An operation on the tape: `at` is the last one in the order that has a name, its own if it is `named`. `ends`:
    a weight, whose gradient is finished once there are two."""

    at: str
    named: bool
    back: Backward
    ends: bool = False


@dataclass(eq=False)
class Value:
    """What an operation made: its axes, and the node, None for what needs no gradient."""

    axes: Axes
    node: Node | None


@dataclass
class Tape:
    """Operations as they are written down, and their backward pass. `ones`: axes of size 1. `stays`: bytes of what
    operations have left behind."""

    ones: frozenset[str]
    order: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    waiting: dict[Node, Grad] = field(default_factory=dict)
    local: list[Storage] = field(default_factory=list)
    handed: list[tuple[Value, Grad]] = field(default_factory=list)
    found: dict[tuple[str, bool, bool], list[Counter[Kind]]] = field(default_factory=dict)
    at: str = ""
    done: bool = False
    after: bool = False
    stays: int = 0

    def made(self, axes: Axes, back: Backward, name: str = "") -> Value:
        """What an operation makes; `name` stands in the order, where a kept tensor or a weight goes by it."""
        if name and (not self.order or self.order[-1] != name):
            self.order.append(name)
        node = Node(self.order[-1], bool(name), back)
        self.nodes.append(node)
        return Value(axes, node)

    def stop(self, name: str) -> None:
        """A name in the order without an operation."""
        self.order.append(name)

    # Backwards.

    def new(self, axes: Sequence[str], role: Role = "work", laid: Axes | None = None) -> Grad:
        """A further tensor, while an operation's gradients are made."""
        storage = Storage(" ".join(sorted(axes)), role)
        self.local.append(storage)
        self.record()
        return Grad(storage, tuple(axis for axis in (axes if laid is None else laid) if axis != NARROWED))

    def drop(self, *gone: Grad) -> None:
        """Tensors that are no longer there."""
        for each in gone:
            self.local.remove(each.storage)

    def give(self, value: Value, grad: Grad) -> None:
        """Hand a gradient to what made a value, once the operation is done."""
        if value.node is not None:
            self.handed.append((value, grad))

    def beside(self, axes: Iterable[str], laid: Axes) -> bool:
        """True if axes lie beside each other in this order; those of size 1 lie anywhere."""
        wanted = [axis for axis in axes if axis not in self.ones]
        there = [axis for axis in laid if axis not in self.ones]
        if len(wanted) < 2:
            return True
        start = there.index(wanted[0])
        return there[start : start + len(wanted)] == wanted

    def merged(self, grad: Grad, groups: Sequence[Sequence[str]]) -> Grad:
        """A gradient with the axes of each group as one: a view, or a copy."""
        if all(self.beside(group, grad.laid) for group in groups):
            return grad
        axes = [axis for group in groups for axis in group]
        return self.new(axes, grad.storage.role)

    def deliver(self) -> None:
        """Hand on what was given: the first is taken as it is, a further one added to it."""
        while self.handed:
            value, grad = self.handed.pop(0)
            assert value.node is not None
            known = self.waiting.get(value.node)
            if known is None:
                self.waiting[value.node] = grad
                continue
            if value.node.ends:  # the sum is the gradient itself, which is finished
                self.local.append(grad.storage)
                self.record()
                self.local.remove(grad.storage)
                del self.waiting[value.node]
                continue
            total = Storage(grad.storage.spec, grad.storage.role)
            self.local += [total, grad.storage]
            self.record()
            self.local = [each for each in self.local if each is not total and each is not grad.storage]
            self.waiting[value.node] = Grad(total, known.laid)

    def unseen(self, axes: Axes) -> Storage:
        """A further tensor, which was there before."""
        return Storage(" ".join(sorted(axes)), "work")

    def record(self, more: int = 0) -> None:
        """Write down what is there, and so many bytes more."""
        there = {id(each): each for each in self.local}
        there |= {id(each.storage): each.storage for each in self.waiting.values()}
        there |= {id(each.storage): each.storage for _, each in self.handed}
        kinds = Counter((each.spec, each.role) for each in there.values() if each.spec)
        if more := more + self.stays:
            kinds["", BYTES] = more
        known = self.found.setdefault((self.at, self.done, self.after), [])
        if not any(kinds <= other for other in known):
            known[:] = [other for other in known if not other <= kinds]
            known.append(kinds)

    def run(self, result: Value, role: Role = "work") -> Iterator[Moment]:
        """The moments of the backward pass from a gradient of the result."""
        assert result.node is not None
        self.after = False
        self.waiting[result.node] = Grad(Storage(" ".join(sorted(result.axes)), role), result.axes)
        names = self.order
        for node in reversed(self.nodes):
            grad = self.waiting.pop(node, None)
            if grad is None:
                continue
            self.at, self.done, self.local = node.at, False, [grad.storage]
            node.back(self, grad)
            self.local = []
            if node.named:  # what it needed goes, and its weight's gradient is there
                place = names.index(node.at)
                self.at, self.done, self.after = names[max(place - 1, 0)], False, False
            self.deliver()
        for (at, done, after), every in self.found.items():
            for kinds in every:
                held = tuple(Held(spec, role, times) for (spec, role), times in kinds.items())
                yield Moment(at, held, done=done, after=after, alone=True)
