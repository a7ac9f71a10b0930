"""What stands in place of attention in the reference model on a tape, and what its own function has at hand."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import ShortConvolution
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Moment
from tfacct.profiles import tape_operations as ops
from tfacct.profiles.tape import Grad, Tape, Value

ROWS = ("B", "T")
PADDED, SEEN = "Tk", "Tj"
"""Letters of the tokens with as many in front as a convolution sees, and of those that the first of them sees no more
than."""


def seen(part: ShortConvolution, tokens: Size) -> dict[str, Size]:
    """Sizes of their letters."""
    return {PADDED: tokens + part.kernel, SEEN: tokens + part.kernel - 1}


def short_convolution(tape: Tape, at: str, x: Value) -> Value:
    """A value and two gates from one product, the convolution between them."""
    made = ops.product(tape, x, (*ROWS, "Dg"), f"{at}.in_proj.weight")
    entry, gate, value = _thirds(tape, made)
    gated = ops.times(tape, entry, value, f"{at}.entry_gate")
    sums = _convolution(tape, f"{at}.conv", gated, "D")
    return ops.product(tape, ops.times(tape, gate, sums, f"{at}.gate"), (*ROWS, "D"), f"{at}.out_proj.weight")


def _thirds(tape: Tape, whole: Value) -> tuple[Value, Value, Value]:
    """Three parts of every vector: their gradients are put into one, once all are there."""
    axes = (*ROWS, "D")
    first = tape.made(axes, lambda t, g: t.give(whole, g))
    second = tape.made(axes, lambda _t, _g: None)
    one, other = first.node, second.node
    assert one is not None
    assert other is not None

    def back(t: Tape, _g: Grad) -> None:
        made = t.new(whole.axes)
        del t.waiting[other]
        t.waiting[one] = made

    return first, second, tape.made(axes, back)


def _convolution(tape: Tape, at: str, x: Value, channels: str) -> Value:
    """Tokens behind nothing, of which each sees its last ones, in one product for each channel."""
    there, windows = ("B", PADDED, channels), (channels, *ROWS, "Kc")
    rows: tuple[str, ...] = ("B", SEEN, channels)

    def back_windows(t: Tape, _g: Grad) -> None:
        nothing = t.new(rows)
        made = t.new(rows)
        t.drop(nothing)
        t.give(narrowed, made)

    def back_sums(t: Tape, _g: Grad) -> None:
        made = t.new(windows)
        t.done = True
        t.record()
        t.give(by_channel, made)

    joined = tape.made(there, lambda t, g: t.give(x, g))
    narrowed = tape.made(rows, lambda t, _g: t.give(joined, t.new(there)))
    by_channel = tape.made(windows, back_windows, at)
    return tape.made((*ROWS, channels), back_sums, f"{at}.weight")


def returned(channels: str) -> tuple[Held, ...]:
    """What a block's caller has of a convolution: its last tokens."""
    return (Held(f"B {channels} Kc"),)


def at_hand(part: ShortConvolution) -> Iterator[Moment]:
    """What the part's own function has at hand: tokens, nothing in front of them, both together, the last of them."""
    own = paths.in_every(paths.BLOCKS, part.name)
    there = Held("B T D", path=paths.in_every(paths.BLOCKS, "in"))
    rows = (Held("B T D"), Held("B D Kc", times=2), Held(f"B {PADDED} D"))
    yield Moment(f"{own}.conv.weight", (there, *rows))
    yield Moment(f"{own}.out_proj.weight", (there, Held("B D Kc"), Held("B T D")))
