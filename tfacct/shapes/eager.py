"""Torch's autograd over shapes alone: storages that are alive while operations run, forwards and backwards.

A tensor is a view of a storage, by shape and strides as in torch; an operation makes a storage or a view, and a node
of the graph that holds what its gradient needs. A storage goes when nothing refers to it any more: Python's own
counts say when, as they do for torch's. So what is written like the reference model holds what that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from math import prod
from typing import Any, ClassVar, TypeAlias
from weakref import ref

Shape: TypeAlias = tuple[int, ...]
Grads: TypeAlias = list["Tensor | None"]
FULL = 4
"""Bytes of a number in fp32."""
LAST = -(1 << 62)
"""Number of what runs in front of all others."""
SEVERAL = 1, None, 1, 1
"""Rounds of a long loop: one stands for all that are like it."""


class Meter:
    """Bytes of storages that are alive, of these those of weights' gradients and of what a graph keeps; `place`: what
    runs. `made`: all storages that were made, where they are asked for."""

    def __init__(self) -> None:
        self.now = self.finished = self.kept = 0
        self.place: object = None
        self.backwards = False
        self.made: list[ref[Storage]] | None = None
        self.round: list[ref[Storage]] | None = None

    def record(self) -> None:
        """Take note of what is there, once an operation has run."""

    def rounds(self, number: int) -> Iterator[int]:
        """Rounds of a loop, by how many each stands for: those between the first and the last two hold the same, and
        are one. What it leaves there counts as often; backwards all of that goes at once, where the next to last is
        fuller."""
        for times in SEVERAL if number > len(SEVERAL) else (1,) * number:
            self.round = []
            yield number + 1 - len(SEVERAL) if times is None else 1
            made, self.round = self.round, None
            for storage in filter(None, [each() for each in made]) if times is None else ():
                more = storage.bytes * (number - len(SEVERAL))
                storage.bytes += more
                storage.times = number + 1 - len(SEVERAL)
                self.now += more


class Storage:
    """Memory of a tensor. `kept`: the graph keeps it from the end of the forward pass on; `times`: how many rounds of a
    loop it stands for."""

    __slots__ = ("__weakref__", "bytes", "kept", "meter", "times")

    def __init__(self, meter: Meter, size: int) -> None:
        self.meter, self.bytes = meter, size
        self.kept, self.times = False, 1
        meter.now += size
        if meter.made is not None:
            meter.made.append(ref(self))
        if meter.round is not None:
            meter.round.append(ref(self))

    def __del__(self) -> None:
        self.meter.now -= self.bytes
        if self.kept:
            self.meter.kept -= self.bytes


class Node:
    """An operation of the graph: the nodes that its gradients go to, and how they are made."""

    __slots__ = ("back", "edges", "number", "outputs", "place")
    numbers = count()

    def __init__(self, read: Sequence[Tensor], back: Callable[[Grads], Grads] | None, outputs: int = 1) -> None:
        self.number = next(Node.numbers)
        self.edges = [None if one.node is None else (one.node, one.index) for one in read]
        self.back, self.outputs = back, outputs
        self.place = read[0].storage.meter.place if read else None


class Tensor:
    """A view of a storage: `each` number has so many bytes."""

    __slots__ = ("each", "index", "node", "shape", "storage", "strides")

    def __init__(
        self, storage: Storage, shape: Shape, strides: Shape, each: int, node: Node | None = None, index: int = 0
    ) -> None:
        self.storage, self.shape, self.strides, self.each = storage, shape, strides, each
        self.node, self.index = node, index

    library: ClassVar[Any] = None

    def __getattr__(self, name: str) -> Any:
        """A method of torch's tensors, where these stand in their place."""
        return Tensor.library.method(self, name)

    @property
    def needs(self) -> bool:
        """True if it has a gradient."""
        return self.node is not None

    def bare(self) -> Tensor:
        """The same without its node, as an operation saves it."""
        return Tensor(self.storage, self.shape, self.strides, self.each)

    def dense(self) -> bool:
        """True if its numbers lie in a row, each once."""
        expected = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size != 1:
                if stride != expected:
                    return False
                expected *= size
        return True


class Leaf(Node):
    """A tensor that no operation made: its gradient stays, and it with it. Of a weight, the gradient has so many
    `bytes`, of other tensors it counts as none's."""

    __slots__ = ("bytes", "grad", "own")

    def __init__(self, size: int = 0, own: Storage | None = None) -> None:
        super().__init__((), None)
        self.bytes, self.own = size, own
        self.grad: Tensor | None = None

    def finish(self, grad: Tensor) -> None:
        """Take the gradient as it is; where it does not lie as the tensor does, a copy."""
        laid = zip(grad.strides, packed(grad.shape), grad.shape, strict=True)
        as_it_is = all(size == 1 or own == wanted for own, wanted, size in laid)
        self.grad = grad if as_it_is else new(grad.storage.meter, grad.shape, grad.each)


def packed(shape: Shape) -> Shape:
    """Strides of numbers that lie in a row."""
    found, stride = [], 1
    for size in reversed(shape):
        found.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(found))


def new(meter: Meter, shape: Shape, each: int, strides: Shape | None = None) -> Tensor:
    """A further tensor."""
    made = Tensor(Storage(meter, prod(shape) * each), shape, packed(shape) if strides is None else strides, each)
    meter.record()
    return made


def noted(made: Tensor, read: Sequence[Tensor], back: Callable[[Grads], Grads]) -> Tensor:
    """What an operation made, with its node where a gradient is needed."""
    if any(one.node is not None for one in read):
        made.node = Node(read, back)
    return made


def backward(meter: Meter, root: Node, grad: Tensor) -> None:
    """Run the graph backwards from what a node made: of nodes whose gradients are all there, the last first, but leaves
    at once. The graph stays: what its nodes hold goes, but leaves."""
    meter.backwards = True
    waiting: dict[Node, Grads] = {root: [grad]}
    missing = _missing(root)
    ready: list[tuple[int, int, Node]] = [(-root.number, 0, root)]
    turns = count(1)
    del grad
    while ready:
        node = heappop(ready)[2]
        if isinstance(node, Leaf):
            (last,) = waiting.pop(node)
            assert last is not None
            node.finish(last)
            del last
            continue
        meter.place = node.place
        made = _ran(node, waiting.pop(node))
        for nth, edge in enumerate(node.edges):
            own, made[nth] = made[nth], None
            if edge is None:
                continue
            to, index = edge
            if own is not None:
                if to not in waiting and isinstance(to, Leaf):
                    meter.finished += to.bytes
                slots = waiting.setdefault(to, [None] * to.outputs)
                known, slots[index] = slots[index], None
                if known is not None:  # what is added is handed on no further, and goes with the operation's others
                    made[nth] = own
                    own = new(meter, known.shape, known.each, like(known, own))
                slots[index] = own
                del known
            del own
            missing[to] -= 1
            if not missing[to]:
                waiting.setdefault(to, [None] * to.outputs)
                if isinstance(to, Leaf) and waiting[to] == [None]:
                    del waiting[to]
                    continue
                heappush(ready, (LAST if isinstance(to, Leaf) else -to.number, next(turns), to))
        del made


def _missing(root: Node) -> dict[Node, int]:
    """How many gradients each node waits for."""
    found: dict[Node, int] = {root: 0}
    stack = [root]
    while stack:
        for edge in stack.pop().edges:
            if edge is not None:
                if edge[0] not in found:
                    found[edge[0]] = 0
                    stack.append(edge[0])
                found[edge[0]] += 1
    return found


def _ran(node: Node, grads: Grads) -> Grads:
    """Gradients of what a node read."""
    if all(one is None for one in grads):
        return [None] * len(node.edges)
    back, node.back = node.back, None
    assert back is not None
    return back(grads)


def like(*of: Tensor) -> Shape:
    """Strides of what is made number by number of tensors: dense, in the order of theirs."""
    shape = broadcast(*[one.shape for one in of])
    if all(one.shape == shape and one.strides == of[0].strides for one in of) and of[0].dense():
        return of[0].strides
    wide = [_strides_in(one, shape) for one in of]
    order = list(range(len(shape)))[::-1]  # the fastest first
    for start in range(1, len(order)):
        at = start
        for before in range(start - 1, -1, -1):
            swaps = _swaps(order[before], order[at], wide, shape)
            if swaps > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif swaps < 0:
                break
    strides, stride = [0] * len(shape), 1
    for dim in order:
        strides[dim] = stride
        stride *= max(shape[dim], 1)
    return tuple(strides)


def _swaps(one: int, other: int, wide: Sequence[Shape], shape: Shape) -> int:
    """Above 0 if the first of two axes lies farther apart than the other, below if nearer."""
    for strides in wide:
        first, second = strides[one], strides[other]
        if not first or not second:
            continue
        if first != second:
            return 1 if first > second else -1
        if shape[one] > shape[other]:
            return 1
    return 0


def _strides_in(one: Tensor, shape: Shape) -> Shape:
    more = len(shape) - len(one.shape)
    own = zip(one.shape, one.strides, shape[more:], strict=True)
    return (0,) * more + tuple(0 if size == 1 and size != wanted else stride for size, stride, wanted in own)


def broadcast(*shapes: Shape) -> Shape:
    """Shape of what is made of several."""
    size = max(map(len, shapes))
    padded = [(1,) * (size - len(one)) + one for one in shapes]
    return tuple(max(each) if 0 not in each else 0 for each in zip(*padded, strict=True))


def viewed(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Strides of a tensor seen in another shape; None where that needs a copy."""
    if prod(shape) == 0:
        return packed(wanted)
    found = [0] * len(wanted)
    at = len(wanted) - 1
    there, seen, base = 1, 1, strides[-1] if strides else 1
    for dim in range(len(shape) - 1, -1, -1):
        there *= shape[dim]
        if dim == 0 or (shape[dim - 1] != 1 and strides[dim - 1] != there * base):
            while at >= 0 and (seen < there or wanted[at] == 1):
                found[at] = seen * base
                seen *= wanted[at]
                at -= 1
            if seen != there:
                return None
            if dim > 0:
                base, there, seen = strides[dim - 1], 1, 1
    return None if at != -1 else tuple(found)
