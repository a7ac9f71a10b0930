"""The reference model's experts on a tape: rows are dealt out one after the other, whole rounds in one product."""

from __future__ import annotations

from typing import NamedTuple

from tfacct.architecture.parts import Experts
from tfacct.ledger.einsum import Size
from tfacct.profiles import tape_operations as ops
from tfacct.profiles.tape import Axes, Grad, Tape, Value

ROWS = ("B", "T", "A")
WHOLE, LEFT = "Mw", "Ml"
"""Letters of the rows in whole rounds of the experts, and of those that are left."""


class Dealt(NamedTuple):
    """How many whole rounds of the experts there are, and rows that are left."""

    rounds: int
    left: int
    experts: int

    @property
    def letters(self) -> dict[str, Size]:
        """Sizes of their letters."""
        return {WHOLE: self.rounds * self.experts, LEFT: self.left}


def dealt(part: Experts, batch: int, tokens: int) -> Dealt:
    """Rows of a part's experts. Its sizes are numbers."""
    return Dealt(*divmod(batch * tokens * int(part.active), int(part.experts)), int(part.experts))


def bank(tape: Tape, x: Value, into: str, name: str, how: Dealt) -> Value:
    """A product of each row with its expert's weight."""
    size, (rounds, left, experts) = x.axes[-1], how
    weight: Axes = ("E", size, into)
    rows, whole, few = (*ROWS, size), (WHOLE, size), (LEFT, size)
    read = ops.alias(tape, x, rows)
    sums = tape.made(weight, lambda _t, _g: None)
    assert sums.node is not None
    sums.node.ends = True
    results: list[Value] = []
    if rounds:
        slices = tape.made(whole, lambda t, _g: t.give(read, t.new(rows))) if left else read

        def back_laid(t: Tape, g: Grad) -> None:
            t.give(slices, t.new(whole) if rounds > 1 and experts > 1 else g)

        def back_whole(t: Tape, _g: Grad) -> None:
            t.give(by_expert, t.new(whole))
            if left:
                t.give(sums, t.new(weight))
                return
            t.done = True
            t.record()

        by_expert = tape.made(whole, back_laid)
        results.append(tape.made((WHOLE, into), back_whole, name))
    if left:
        cut = tape.made(few, lambda t, g: t.give(read, t.new(rows) if rounds else g))

        def back_weight(t: Tape, _g: Grad) -> None:
            if rounds:
                t.give(sums, t.new(weight))
            else:  # the gradient itself
                t.record()

        def back_few(t: Tape, _g: Grad) -> None:
            t.give(cut, t.new(few))
            t.give(some, t.new((LEFT, size, into)))

        some = tape.made((LEFT, size, into), back_weight)
        results.append(tape.made((LEFT, into), back_few, "" if rounds else name))

    def back_rows(t: Tape, g: Grad) -> None:
        for each in results:
            t.give(each, g)

    return tape.made((*ROWS, into), back_rows)


def weighted(tape: Tape, results: Value, weights: Value, name: str) -> Value:
    """Results multiplied by their weights, of which there is one for each vector."""

    def back(t: Tape, _g: Grad) -> None:
        first = t.new(results.axes)
        second = t.new(results.axes)
        third = t.new(weights.axes)
        t.drop(second)
        t.give(results, first)
        t.give(weights, third)

    return tape.made(results.axes, back, name)


def chosen(tape: Tape, x: Value, at: str) -> Value:
    """The weights of each token's experts, from the router's scores."""
    scores = ops.product(tape, x, ("B", "T", "E"), f"{at}.router.weight")
    routing = ops.one_more(tape, scores, f"{at}.routing")
    return tape.made(ROWS, lambda t, _g: t.give(routing, t.new(("B", "T", "E"))), f"{at}.gather")


def sent(tape: Tape, x: Value) -> Value:
    """Each token once for each of its experts: a view, whose gradient is summed."""
    axes = (*ROWS, x.axes[-1])
    return tape.made(axes, lambda t, g: t.give(x, g if "A" in t.ones else t.new(x.axes)))
