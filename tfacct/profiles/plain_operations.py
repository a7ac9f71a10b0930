"""Operations of parts that are written out in the pass's dtype: number by number, along axes, products of heads."""

from __future__ import annotations

from tfacct.ledger.kept import Role
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_operations import dense
from tfacct.profiles.written_storage import Axes, Joint, Storage


def times(t: Trace, x: Value, y: Value, name: str, path: str = "") -> Value:
    """Two tensors multiplied; the second may have fewer axes, over which its gradient is summed."""
    t.named(name)
    role: Role = "full" if "full" in (x.role, y.role) else "work"
    roles, needed = (x.role, y.role), (x.node is not None, y.node is not None)
    fewer, axes = set(y.axes) < set(x.axes), y.axes

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        other = b.new(g.laid, role) if needed[1] else None
        made = b.new(g.laid, role) if needed[0] else None
        b.after = True
        if fewer and other is not None:
            other = b.new(axes, role)
        given = [made, other]
        del made, other
        for nth, own in enumerate(roles):
            if given[nth] is not None and own != role:
                given[nth] = b.new(g.laid if nth == 0 or not fewer else axes, own)
        return given

    node = t.node((x.node, y.node), back)
    t.save(node, *((y.storage,) if needed[0] else ()), *((x.storage,) if needed[1] else ()))
    t.after = True
    return Value(t.new(dense(x), role, path), x.axes, node)


def less(t: Trace, x: Value, y: Value, axes: Axes = (), path: str = "") -> Value:
    """A difference; of `axes` where each is seen along those that the other has."""
    whole = axes or x.axes
    one, other = set(x.axes) < set(whole), set(y.axes) < set(whole)
    first, second, needed = x.axes, y.axes, y.node is not None

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        negative = b.new(g.laid, g.role) if needed else None
        mine = b.new(first, g.role) if one else g
        if other and needed:
            negative = b.new(second, g.role)
        return [mine, negative]

    laid = whole if axes else dense(x)
    return Value(t.new(laid, x.role, path), whole, t.node((x.node, y.node), back))


def sums(t: Trace, x: Value, axes: Axes) -> Value:
    """Sums, of what has these axes: the gradient is seen along the others."""
    return Value(t.new(axes, x.role), axes, t.node((x.node,), lambda _b, g: (g,)))


def root(t: Trace, x: Value, name: str, path: str) -> Value:
    """One over the square root, which is kept."""
    t.named(name)
    role, axes = x.role, x.axes

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        first = b.new(axes, role)
        second = b.new(axes, role)
        made = b.new(axes, role)
        del first, second
        return [made]

    node = t.node((x.node,), back)
    made = t.new(dense(x), role, path)
    t.save(node, made)
    t.after = True
    return Value(made, axes, node)


def squares(t: Trace, x: Value, name: str) -> Value:
    """A tensor times itself."""
    t.named(name)
    role, laid = x.role, dense(x)

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        return [b.new(laid, role) for _ in range(2)]

    node = t.node((x.node, x.node), back)
    t.save(node, x.storage, x.storage)
    t.after = True
    return Value(t.new(laid, role), x.axes, node)


def exponent(t: Trace, x: Value, name: str, path: str) -> Value:
    """An exponential, which is kept."""
    t.named(name)
    node = t.node((x.node,), lambda b, g: (b.new(g.laid, g.role),))
    made = t.new(dense(x), x.role, path)
    t.save(node, made)
    t.after = True
    return Value(made, x.axes, node)


def running(t: Trace, x: Value) -> Value:
    """Sums up to each, along the last axis: backwards it is turned round, summed and turned round again."""
    role, axes = x.role, x.axes

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        turned = b.new(g.laid, role)
        added = b.new(g.laid, role)
        del turned
        made = b.new(g.laid, role)
        del added
        return [made]

    return Value(t.new(axes, role), axes, t.node((x.node,), back))


def one_of(t: Trace, x: Value, axis: str) -> Value:
    """One along an axis: a view, whose gradient is among zeros."""
    whole, role = x.axes, x.role
    laid = tuple("-" if each == axis else each for each in x.storage.laid)
    axes = tuple(each for each in x.axes if each != axis)
    node = t.node((x.node,), lambda b, _g: (b.new(whole, role),))
    return Value(Joint(x.storage.parts, laid), axes, node)


def product(t: Trace, left: Value, right: Value, makes: Axes, name: str, *, front: int = 2, path: str = "") -> Value:
    """Products of matrices, as many as there are along the first axes: views of these as one, or copies."""
    t.named(name)
    one, other = _flat(t, left, front, f"{name}.left"), _flat(t, right, front, f"{name}.right")
    needs, axes = (one.node is not None, other.node is not None), (one.axes, other.axes)
    role = left.role

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        last = b.new(axes[1], role) if needs[1] else None
        first = b.new(axes[0], role) if needs[0] else None
        return [first, last]

    def flat(b: Trace, g: Storage) -> list[Storage | None]:
        return [b.merged(g, makes[:front], makes[front:-1], makes[-1:])]

    node = t.node((one.node, other.node), back)
    t.save(node, *((other.storage,) if needs[0] else ()), *((one.storage,) if needs[1] else ()))
    t.after = True
    return Value(t.new(makes, role, path), makes, t.node((node,), flat))


def _flat(t: Trace, x: Value, front: int, path: str) -> Value:
    if t.beside(x.axes[:front], x.storage.laid):
        return x
    return Value(t.new(x.axes, x.role, path), x.axes, t.node((x.node,), lambda _b, g: (g,)))


def turned(t: Trace, x: Value, name: str, path: str = "", *, last: bool = False) -> Value:
    """Heads turned by angles in the pass's dtype: halves change places. `last`: backwards, what frees the angles."""
    axes = x.axes
    t.named(name)

    def by_angle(b: Trace, g: Storage) -> list[Storage | None]:
        b.after = b.after or last
        return [b.new(g.laid, g.role)]

    def half(b: Trace, g: Storage) -> list[Storage | None]:
        b.after = last
        return [b.new(axes, g.role)]

    def both(_b: Trace, g: Storage) -> list[Storage | None]:
        return [g, g]

    def multiplied(one: Value) -> Value:
        node = t.node((one.node,), by_angle)
        t.save(node, None)
        return Value(t.new(dense(one), one.role), axes, node)

    one = multiplied(x)
    halves = [t.node((x.node,), half) for _ in range(2)]
    other = multiplied(Value(t.new(axes, x.role), axes, t.node(halves, both)))
    return Value(t.new(dense(x), x.role, path), axes, t.node((one.node, other.node), both))
