"""What stands in place of attention in the reference model on a tape: run by itself over shapes, and what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tfacct.architecture.parts import Mixer
from tfacct.ledger.kept import FULL, Kept
from tfacct.profiles.eager_mixers import RUNS
from tfacct.profiles.tape import Grad, Tape, Value
from tfacct.shapes.eager import Leaf, Meter, Storage, Tensor, backward, noted, packed
from tfacct.shapes.operations import Operations

STREAM = ("B", "T", "D")


READ, GIVEN = "read", "given"
"""Tensors that are counted elsewhere: what a part reads, and the gradient of its result."""


class Behind(NamedTuple):
    """Backwards, `at` an operation whose weight's gradient is there or not: bytes `held` beside what is kept, and
    whether the gradient is there that it began with."""

    at: str
    done: bool
    given: bool
    held: int


class Ran(NamedTuple):
    """A part that ran by itself: its operations in their order, the first of which have no weights. Bytes beside what
    it keeps: `ahead`, the most while it runs forwards, with what is counted at its last operation; `behind`, backwards;
    `returned`, what its caller has of it; `beside`, what the graph has from then on; `stays`, what it leaves behind."""

    order: tuple[str, ...]
    ahead: int
    behind: Sequence[Behind]
    returned: int
    beside: int
    stays: int


def ran(
    part: Mixer,
    at: str,
    lines: Sequence[tuple[Kept, int]],
    reads: Sequence[str],
    *,
    batch: int,
    tokens: int,
    full: bool,
) -> Ran:
    """Run a part. `lines`: what it keeps, and how many bytes. What it reads is counted elsewhere, as long as one of the
    operations `reads` needs it: none, where it stays anyway."""
    meter, shape = Meter(), (batch, tokens, int(part.hidden))
    each = FULL if full else FULL // 2
    ops, strides = Operations(meter, each), packed(shape)
    first = Tensor(Storage(meter, 0, READ), shape, strides, each, Leaf(meter, "", 0))
    x = noted(first.bare(), (first,), lambda grads: grads)
    out, *states = RUNS[type(part)](ops, at, part).forward(x)
    del x, first
    most, there = meter.most, meter.now
    del states
    returned, root = there - meter.now, out.node
    assert root is not None
    del out  # which nobody needs once it is added
    beside = meter.now - sum(size for _, size in lines)
    backward(meter, root, Tensor(Storage(meter, 0, GIVEN), shape, strides, each))
    weights, stream = meter.order[::-1], prod(shape) * each
    idle = {name: size for name, size in meter.parameters.items() if name not in weights}  # that get no gradient
    others = dict.fromkeys(name for line, _ in lines for name in line.by if name not in meter.parameters)
    order = (*others, *idle, *weights)
    kept, place = [0] * len(order), dict(zip(order, range(len(order)), strict=True))
    for line, size in lines:
        kept[min(place[name] for name in line.by)] += size
    behind = []
    for (finished, there_), size in meter.backward.items():
        here = len(order) - max(finished, 1)
        gone = stream if READ not in there_ and any(place[name] <= here for name in reads) else 0
        behind.append(Behind(order[here], finished > 0, GIVEN in there_, size - gone - sum(kept[: here + 1])))
    stays = meter.now - meter.finished - stream - sum(idle.values())
    return Ran(order, most - sum(kept), behind, returned, beside, stays)


def mixer(tape: Tape, x: Value, how: Ran) -> Value:
    """The part on a tape, as one operation."""

    def back(t: Tape, g: Grad) -> None:
        for t.at, t.done, given, held in how.behind:
            t.local = [g.storage] if given else []
            t.record(held)
        t.local = []
        t.stays += how.stays - how.beside
        t.give(x, Grad(t.unseen(STREAM), STREAM))

    for name in how.order:
        tape.stop(name)
    made = tape.made(STREAM, back)
    assert made.node is not None
    made.node.at, made.node.named = how.order[0], True
    return made
