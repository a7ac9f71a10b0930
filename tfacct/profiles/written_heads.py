"""What a class that is written out does to heads under autocast: a turn, scores, softmax, torch's kernels."""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.profiles.written import Back, Node, Trace, Value
from tfacct.profiles.written_operations import cast, dense
from tfacct.profiles.written_storage import Axes, Storage


def turned(t: Trace, x: Value, name: str, path: str, *, last: bool = False) -> Value:
    """Heads turned by angles in fp32: halves change places. `last`: backwards, the one that frees the angles.

    Halves that are negated for it are there no longer than what is larger.
    """
    own = x.role
    if x.node is not None:  # else nothing needs the angles
        t.named(name)

    def by_sine(b: Trace, g: Storage) -> list[Storage | None]:
        made = b.new(g.laid, "full")
        return [made if own == "full" else b.new(g.laid, own)]

    def half(b: Trace, g: Storage) -> list[Storage | None]:
        b.after = last
        return [b.new(g.laid, g.role)]

    def by_cosine(b: Trace, g: Storage) -> list[Storage | None]:
        b.after = last
        made = b.new(g.laid, "full")
        return [made if own == "full" else b.new(g.laid, own)]

    def both(_b: Trace, g: Storage) -> list[Storage | None]:
        return [g, g]

    laid = x.storage.laid
    one = Value(t.new(laid, "full"), x.axes, _unpacking(t, x, by_cosine))
    halves = [t.node((x.node,), half) for _ in range(2)]
    for each in halves:
        if each is not None:
            each.after = last
    other = Value(t.new(laid, own), x.axes, t.node(halves, both))
    other = Value(t.new(laid, "full"), x.axes, _unpacking(t, other, by_sine))
    return Value(t.new(laid, "full", path), x.axes, t.node((one.node, other.node), both))


def turned_copies(t: Trace, x: Value, name: str, *, last: bool = False) -> Value:
    """The same of two copies in fp32: one that angles multiply, and one whose halves change places."""
    t.named(name)

    def alike(b: Trace, g: Storage) -> list[Storage | None]:
        b.after = b.after or last
        return [b.new(g.laid, "full")]

    def both(_b: Trace, g: Storage) -> list[Storage | None]:
        return [g, g]

    one = _multiplied(t, cast(t, x, "full"), alike)
    other = cast(t, x, "full")
    halves = [t.node((other.node,), alike) for _ in range(2)]
    other = Value(t.new(dense(other), "full"), x.axes, t.node(halves, both))
    other = _multiplied(t, other, alike)
    return Value(t.new(dense(other), "full"), x.axes, t.node((one.node, other.node), both))


def turned_neighbours(t: Trace, both: tuple[Value, Value], name: str, at: str, *, wide: bool) -> tuple[Value, Value]:
    """Queries and keys turned by angles that the block repeats for both of two neighbours. `wide`: of copies in
    fp32."""
    t.named(name)
    angles = [t.new(("T", "H"), "full", f"{at}.{which}") for which in ("cos", "sin")]
    made = [_neighbours(t, one, angles, wide=wide) for one in both]
    return made[0], made[1]


def _neighbours(t: Trace, x: Value, angles: Sequence[Storage], *, wide: bool) -> Value:
    own = x.role

    def by_angle(b: Trace, g: Storage) -> list[Storage | None]:
        made = b.new(g.laid, "full")
        b.let_go()
        return [made if wide or own == "full" else b.new(g.laid, own)]

    def half(b: Trace, g: Storage) -> list[Storage | None]:
        return [b.new(g.laid, g.role)]

    def both(_b: Trace, g: Storage) -> list[Storage | None]:
        return [g, g]

    def times(y: Value, angle: Storage) -> Value:
        node = t.node((y.node,), by_angle)
        t.save(node, angle)
        return Value(t.new(dense(y), "full"), y.axes, node)

    one = times(cast(t, x, "full") if wide else x, angles[0])
    halves = [t.node((x.node,), half) for _ in range(2)]
    other = Value(t.new(dense(x), own), x.axes, t.node(halves, both))
    other = cast(t, other, "full") if wide else other
    other = times(other, angles[1])
    return Value(t.new(dense(x), "full"), x.axes, t.node((one.node, other.node), both))


def bounded(t: Trace, x: Value, at: str) -> Value:
    """Heads bounded in place: what they were is kept."""
    t.named(f"{at}_clip")
    before = t.new(dense(x), x.role, f"{at}_unbounded")

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        masks = [b.new(g.laid, "flag") for _ in range(2)]
        made = b.new(g.laid, g.role)
        del masks
        return [made]

    node = t.node((x.node,), back)
    t.save(node, before)
    return Value(x.storage, x.axes, node)


def tempered(t: Trace, x: Value, name: str, path: str) -> Value:
    """Queries times a number of their position, in their dtype."""
    t.named(name)
    numbers = t.new(("T",), x.role, path)
    node = t.node((x.node,), lambda b, g: (b.new(g.laid, g.role),))
    t.save(node, numbers)
    return Value(t.new(dense(x), x.role), x.axes, node)


def _multiplied(t: Trace, x: Value, back: Back) -> Value:
    return Value(t.new(dense(x), "full"), x.axes, _unpacking(t, x, back))


def _unpacking(t: Trace, x: Value, back: Back) -> Node | None:
    """An operation that saves what is accounted for elsewhere."""
    node = t.node((x.node,), back)
    t.save(node, None)
    return node


def contiguous(t: Trace, x: Value, axes: Axes, path: str = "") -> Value:
    """Axes as they lie in this order: a copy, if they do not."""
    laid = [axis for axis in x.storage.laid if axis not in t.ones]
    if laid == [axis for axis in axes if axis not in t.ones]:
        return x.viewed(axes)
    return Value(t.new(axes, x.role, path), axes, t.node((x.node,), lambda _b, g: (g,)))


def repeated(t: Trace, x: Value, path: str) -> Value:
    """Keys or values for every query head: copies, or a view of one head."""
    read = x.axes
    axes = tuple("N" if axis == "K" else axis for axis in read)

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        return [b.new(read, g.role)]

    if "K" in t.ones:
        return Value(x.storage, axes, t.node((x.node,), back))
    return Value(t.new(axes, x.role, path), axes, t.node((x.node,), back))


def _expanded(t: Trace, x: Value) -> Value:
    """One head for every query head: a view."""
    axes, read, role = tuple("N" if axis == "K" else axis for axis in x.axes), x.axes, x.role
    return Value(x.storage, axes, t.node((x.node,), lambda b, _g: (b.new(read, role),)))


def multiplied(
    t: Trace, x: Value, y: Value, name: str, makes: Axes, paths: Sequence[str], *, expands: bool = False
) -> Value:
    """Heads multiplied: both cast to 16 bits, copied where they do not lie head by head. `expands`: one for all."""
    narrow_y = cast(t, y, "work", paths[1])
    narrow_x = cast(t, x, "work", paths[0])  # both are there to the end
    y = _expanded(t, narrow_y) if expands else narrow_y
    x = batched(t, narrow_x, paths[0])
    y = batched(t, y, paths[1])
    t.named(name)
    first, second, of_x, of_y = x.node is not None, y.node is not None, x.axes, y.axes

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        return [b.new(axes) if needed else None for axes, needed in ((of_x, first), (of_y, second))]

    def flat(b: Trace, g: Storage) -> list[Storage | None]:
        return [b.merged(g, makes[:2], makes[2:3], makes[3:])]

    node = t.node((x.node, y.node), back)
    t.save(node, *((x.storage,) if second else ()), *((y.storage,) if first else ()))
    t.after = True
    made = t.new(makes, "work", name)
    return Value(made, makes, t.node((node,), flat))


def batched(t: Trace, x: Value, path: str) -> Value:
    """Sequences and heads as one axis: a copy, where they do not lie beside each other."""
    laid = x.storage.laid
    if t.beside(x.axes[:2], laid) or (x.axes[1] not in laid and "B" in t.ones):
        return x
    if all(axis in t.ones for axis in ("N", "K") if axis in x.axes[:2]):
        return x
    return Value(t.new(x.axes, x.role, path), x.axes, t.node((x.node,), lambda _b, g: (g,)))


def softmax(t: Trace, x: Value, name: str, *, narrow: bool = False) -> Value:
    """A softmax in fp32, or `narrow` in the scores' own dtype."""
    x = x if narrow else cast(t, x, "full")
    role = x.role
    t.named(name)
    node = t.node((x.node,), lambda b, g: (b.new(g.laid, role),))
    made = t.new(x.storage.laid, role, name)
    t.save(node, made)
    t.after = True
    return Value(made, x.axes, node)


def flash(t: Trace, q: Value, k: Value, v: Value, at: str) -> Value:
    """torch's attention in 16 bits, without a mask: its result lies as the queries do."""
    v = cast(t, v, "work", f"{at}.v_proj")
    k = cast(t, k, "work", f"{at}.k_rotary")
    q = cast(t, q, "work", f"{at}.q_rotary")
    t.named(f"{at}.sdpa")
    laid, needed = tuple(dense(each) for each in (q, k, v)), [each.node is not None for each in (q, k, v)]

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made = [b.new(each) for each in laid]
        return [one if so else None for one, so in zip(made, needed, strict=True)]

    node = t.node((q.node, k.node, v.node), back)
    t.save(node, q.storage, k.storage, v.storage)
    made = t.new(tuple(v.axes[-1] if axis == q.axes[-1] else axis for axis in dense(q)), "work", f"{at}.values")
    sums = t.new(("B", "N", "T"), "full", f"{at}.softmax.logsum")
    seed = t.new((), "seed", f"{at}.seed")
    t.save(node, made, sums, seed)
    t.after = True
    return Value(made, (*q.axes[:3], v.axes[-1]), node)


def efficient(t: Trace, q: Value, k: Value, v: Value, at: str, *, aligned: bool, masked: bool = True) -> Value:
    """torch's attention with a mask, which it keeps as numbers, its rows padded unless they are `aligned`; or, not
    `masked`, of values that are not as wide as keys."""
    v = cast(t, v, "work", f"{at}.v_copies")
    k = cast(t, k, "work", f"{at}.k_copies")
    q = cast(t, q, "work", f"{at}.q_rotary")
    t.named(f"{at}.sdpa")
    mask = t.new(("B", "T", "S"), "work", f"{at}.mask") if masked else None
    if masked and not aligned:
        mask = t.new(("B", "T", "S8"), "work", f"{at}.mask")
    laid, needed = tuple(each.axes for each in (q, k, v)), [each.node is not None for each in (q, k, v)]

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made = [b.new((axes[0], axes[2], axes[1], axes[3])) for axes in laid]
        return [one if so else None for one, so in zip(made, needed, strict=True)]

    node = t.node((q.node, k.node, v.node), back)
    t.save(node, q.storage, k.storage, v.storage, mask)
    made = t.new(("B", "T", "N", v.axes[-1]), "work", f"{at}.values")
    sums = t.new(("B", "N", "T32"), "full", f"{at}.softmax.logsum")
    seeds = [t.new((), "index", f"{at}.{which}") for which in ("seed", "offset")]
    t.save(node, made, sums, *seeds)
    t.after = True
    return Value(made, (*q.axes[:3], v.axes[-1]), node)
