"""Operations of the reference model on a tape: products, norms, activations, what is done to heads."""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.profiles.tape import Axes, Grad, Tape, Value

RESULTS = ("relu", "tanh")


def alias(tape: Tape, value: Value, axes: Axes) -> Value:
    """A view: its gradient is one too."""
    return tape.made(axes, lambda t, g: t.give(value, g))


def split(tape: Tape, value: Value, groups: Sequence[Sequence[str]], axes: Axes) -> Value:
    """Heads of rows: their gradient is merged again, for which it may be copied."""

    def back(t: Tape, g: Grad) -> None:
        storage, laid = t.merged(g, groups)
        t.give(value, Grad(storage, tuple("T" if axis == "S" else axis for axis in laid)))

    return tape.made(axes, back)


def total(tape: Tape, one: Value, other: Value) -> Value:
    """A sum: its gradient is that of both."""

    def back(t: Tape, g: Grad) -> None:
        t.give(one, g)
        t.give(other, g)

    return tape.made(one.axes, back)


def one_more(tape: Tape, value: Value, name: str = "") -> Value:
    """An operation whose gradient is a tensor of its own: an activation, a factor."""

    def back(t: Tape, g: Grad) -> None:
        t.give(value, t.new(value.axes, g.storage.role, g.laid))

    return tape.made(value.axes, back, name)


def product(tape: Tape, value: Value, axes: Axes, name: str) -> Value:
    """A product with a weight. `axes` of the result, those of rows last as one."""
    read = value.axes

    def flat(t: Tape, g: Grad) -> None:
        t.give(raw, t.merged(g, (axes[:2], axes[2:])))

    def back(t: Tape, _g: Grad) -> None:
        made = t.new(read)
        t.done = True
        t.record()
        t.give(value, made)

    raw = tape.made(axes, back, name)
    return tape.made(axes, flat)


def layer_norm(tape: Tape, value: Value, name: str) -> Value:
    """torch's LayerNorm, one operation."""

    def back(t: Tape, _g: Grad) -> None:
        t.done = True
        t.give(value, t.new(value.axes))

    made = tape.made(value.axes, back, name)
    tape.stop(f"{name}.weight")
    return made


def rms_norm(tape: Tape, value: Value, name: str, each: Axes, last: Axes, *, full: bool) -> Value:
    """torch's RMSNorm, in fp32: a copy, its squares' mean, the root, two products, a copy in the pass's dtype."""
    axes = value.axes

    def back_narrow(t: Tape, g: Grad) -> None:
        t.give(scaled, g if full else t.new(axes, "full", g.laid))

    def back_scaled(t: Tape, g: Grad) -> None:
        made = t.new(axes, "full", g.laid)
        weight = t.new(axes, "full", g.laid)
        own = t.new(last, "full")
        t.drop(weight)
        if not full:
            t.new(last)
        t.drop(own)
        t.done = True
        t.give(normed, made)

    def back_normed(t: Tape, g: Grad) -> None:
        made = t.new(axes, "full", g.laid)
        t.drop(t.new(axes, "full", g.laid))
        t.give(wide, made)
        t.give(root, t.new(each, "full"))

    def back_root(t: Tape, _g: Grad) -> None:
        t.give(mean, t.new(each, "full"))

    def back_mean(t: Tape, _g: Grad) -> None:
        t.give(squares, t.new(axes, "full"))

    def back_squares(t: Tape, _g: Grad) -> None:
        for _ in range(2):
            t.new(axes, "full")
        t.give(wide, t.new(axes, "full"))

    def back_wide(t: Tape, g: Grad) -> None:
        t.give(value, t.new(axes, "work", g.laid))

    wide = value if full else tape.made(axes, back_wide)
    squares = tape.made(axes, back_squares, f"{name}.square")
    mean = tape.made(each, back_mean)
    root = tape.made(each, back_root, f"{name}.root")
    normed = tape.made(axes, back_normed)
    scaled = tape.made(axes, back_scaled, f"{name}.weight")
    return tape.made(axes, back_narrow)


def activated(tape: Tape, value: Value, function: str, name: str) -> Value:
    """An activation; a square of another has two more tensors beside its gradient."""
    if function != "relu2":
        return one_more(tape, value, name)
    root = one_more(tape, value, name)

    def back(t: Tape, _g: Grad) -> None:
        for _ in range(2):
            t.new(value.axes)
        t.give(root, t.new(value.axes))

    return tape.made(value.axes, back, name)


def times(tape: Tape, one: Value, other: Value, name: str) -> Value:
    """Two tensors multiplied, number by number."""

    def back(t: Tape, g: Grad) -> None:
        first = t.new(one.axes, "work", g.laid)
        second = t.new(other.axes, "work", g.laid)
        t.give(one, first)
        t.give(other, second)

    return tape.made(one.axes, back, name)


def turned(tape: Tape, heads: Value, part: str, *, neighbours: bool, name: str = "") -> Value:
    """Heads turned by their positions, or the `part` of them that is. `name`: of the first that turns, whose gradient
    is the last to need the angles; its sines go before the cosines."""
    whole, axes = heads.axes, (*heads.axes[:-1], part)
    rest = None
    if part != whole[-1]:
        rest, heads = _parted(tape, heads, axes)
    if neighbours:
        heads = _rejoined(tape, heads)
    read = heads

    def back_cosine(t: Tape, g: Grad) -> None:
        t.give(read, t.new(axes, "work", g.laid))

    def back_sine(t: Tape, g: Grad) -> None:
        t.give(halves, t.new(axes, "work", g.laid))
        t.after = bool(name)

    def back_sum(t: Tape, g: Grad) -> None:
        t.give(by_sine, g)
        t.give(by_cosine, g)

    halves = tape.made(axes, lambda t, _g: t.give(read, t.new(axes)))
    by_cosine = tape.made(axes, back_cosine, name)
    by_sine = tape.made(axes, back_sine)
    result = tape.made(axes, back_sum)
    if rest is None:
        return result
    apart = rest

    def back_joined(t: Tape, g: Grad) -> None:
        t.give(result, g)
        t.give(apart, g)

    return tape.made(whole, back_joined)


def _parted(tape: Tape, heads: Value, axes: Axes) -> tuple[Value, Value]:
    """The rest of a head, and the part that turns: both gradients are joined into one."""
    rest = alias(tape, heads, heads.axes)
    assert rest.node is not None
    node = rest.node

    def back(t: Tape, _g: Grad) -> None:
        t.waiting[node] = t.new(heads.axes)

    return rest, tape.made(axes, back)


def _rejoined(tape: Tape, heads: Value) -> Value:
    """Neighbours apart, halves beside each other: the gradient is laid out as before."""
    return tape.made(heads.axes, lambda t, _g: t.give(heads, t.new(heads.axes)))


def multiplied(tape: Tape, left: Value, right: Value, axes: Axes, heads: str, name: str) -> Value:
    """A product of heads, each of the left with the one of `right` that it shares: heads `K` of these, groups of `G`.
    `axes`: those of the result; `heads`: the letter that the right one's are counted by."""
    shared = right.axes
    copies = (shared[0], "N", *shared[2:])

    def back_shared(t: Tape, g: Grad) -> None:
        laid = tuple(heads if axis == "N" else axis for axis in g.laid)
        t.give(right, Grad(g.storage, laid) if "G" in t.ones else t.new(laid))

    def back(t: Tape, _g: Grad) -> None:
        first = t.new(left.axes)
        turned_ = copies if axes[-1] == copies[-1] else (*copies[:2], copies[3], copies[2])
        t.give(left, first)
        t.give(widened, t.new(turned_))

    widened = tape.made(copies, back_shared)
    raw = tape.made(axes, back, name)
    return tape.made(axes, lambda t, g: t.give(raw, t.merged(g, (axes[:2], axes[2:3], axes[3:]))))
