"""Views of tensors in classes that are written out: slices, parts of heads that turn, several products in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfacct.ledger.kept import Role
from tfacct.profiles.written import LEAF, Back, Node, Trace, Value
from tfacct.profiles.written_operations import ROWS, cast, dense
from tfacct.profiles.written_storage import Axes, Joint, Storage

APART = "-"
"""An axis of a tensor that its pieces have not: what lies between their numbers."""


def part(t: Trace, x: Value, made: Axes, *, whole: bool) -> Value:
    """The part of heads that turns, `whole` if all do: a view, whose gradient is among zeros for the rest."""
    axes, role = x.axes, x.role

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        return [g if whole else b.new(axes, role)]

    return Value(x.storage, made, t.node((x.node,), back))


def rest(t: Trace, x: Value) -> Value:
    """The rest of heads: the same."""
    axes, role = x.axes, x.role
    return Value(x.storage, axes, t.node((x.node,), lambda b, _g: (b.new(axes, role),)))


def turned(t: Trace, x: Value, name: str, *, last: bool = False) -> Value:
    """A part of heads turned by angles in fp32: halves change places. `last`: backwards, what frees the angles."""
    own, axes = x.role, x.axes
    t.named(name)

    def wide(b: Trace) -> Storage:
        made = b.new(axes, "full")
        return made if own == "full" else b.new(axes, own)

    def by_angle(b: Trace, _g: Storage) -> list[Storage | None]:
        b.after = b.after or last
        return [wide(b)]

    def half(b: Trace, _g: Storage) -> list[Storage | None]:
        b.after = last
        return [b.new(axes, own)]

    def both(_b: Trace, g: Storage) -> list[Storage | None]:
        return [g, g]

    one = Value(t.new(dense(x), "full"), axes, _unpacking(t, x.node, by_angle))
    halves = [t.node((x.node,), half) for _ in range(2)]
    other = Value(t.new(axes, own), axes, t.node(halves, both))
    other = Value(t.new(axes, "full"), axes, _unpacking(t, other.node, lambda b, _g: (wide(b),)))
    return Value(t.new(dense(x), "full"), axes, t.node((one.node, other.node), both))


def _unpacking(t: Trace, source: Node | None, back: Back) -> Node | None:
    node = t.node((source,), back)
    t.save(node, None)
    return node


def joined(t: Trace, x: Value, beside: Value, axes: Axes, path: str) -> Value:
    """What is turned of heads, and the rest, beside each other: the latter's gradient is cast back."""
    own, role, other = beside.role, x.role, x.axes

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        return [g, g if own == role else lesser(b, axes, other, own)]

    return Value(t.new(axes, role, path), axes, t.node((x.node, beside.node), back))


def lesser(t: Trace, whole: Axes, lacks: Axes, role: Role) -> Storage:
    """A tensor of one's axes without another's."""
    made = Joint((Storage(t.there, whole, role), Storage(t.there, lacks, role, sign=-1)), whole)
    t.record()
    return made


def products(
    t: Trace,
    x: Value,
    parts: Sequence[tuple[str, Axes]],
    laid: Axes,
    *,
    bias: bool = False,
    conv: bool = False,
    trained: bool = True,
) -> tuple[Joint, Node | None]:
    """A product with the weights of several `parts` in one, by their paths and axes; how these lie in it. `conv`: of
    GPT-2's own class."""
    flows = x.node is not None
    rows = tuple(axis for axis in x.axes if axis in ROWS)
    reads = tuple(axis for axis in x.axes if axis not in ROWS)

    def each(*more: str) -> list[tuple[Axes, str]]:
        return [((*makes, *more), "") for _, makes in parts]

    def parameter(kind: str) -> tuple[Joint, Node | None]:
        more = () if kind == "bias" else reads
        if not trained:
            casts = [((*makes, *more), f"{path}.{kind}_cast") for path, makes in parts]
            return t.joint(casts, (*laid, *more)), None
        saved = kind == "weight" and t.keeps
        kept_there = saved or t.cache is not None
        there = t.there if kept_there else t.elsewhere
        node: Node | None = None
        names = [f"{path}.{kind}" for path, _ in parts]
        for number, name in enumerate(names):
            t.named(name)
            made = t.node((LEAF,), finish)
            node = made if not number else node
        t.at = names[0]
        storages = tuple(Storage(there, (*makes, *more), "work", f"{path}.{kind}_cast") for path, makes in parts)
        joint = Joint(storages, (*laid, *more))
        if kept_there:
            t.record()
        if t.cache is not None:
            t.cache.append(joint)
        for one in storages:
            t.casts.append((t.at, one.kind, one.path if saved else ""))
        return joint, node

    nothing: tuple[Joint | None, Node | None] = None, None
    of_bias = parameter("bias") if bias and not conv else nothing
    weight, of_weight = parameter("weight")
    first = parts[0][0]
    if x.role == "full" and (trained or flows):
        t.named(f"{first}.cast")
    read = cast(t, x, "work", f"{first}.in")
    of_bias = parameter("bias") if bias and conv else of_bias
    t.named(f"{first}.matmul")

    def flat(b: Trace, g: Storage) -> list[Storage | None]:
        return [b.merged(g, ROWS, laid)]

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        given = b.new((*rows, *reads)) if flows else None
        own = b.joint(each(*reads), (*laid, *reads)) if trained else None
        b.after = True
        b.let_go()
        return [given, own, b.joint(each(), laid) if bias and trained else None]

    node = t.node((read.node, of_weight, of_bias[1]), back)
    t.save(node, *((read.storage,) if trained else ()), *((weight,) if flows else ()))
    t.after = True
    made = t.joint([((*rows, *makes), path) for path, makes in parts], (*rows, *laid))
    return made, t.node((node,), flat)


def multiple(t: Trace, whole: Joint, node: Node | None) -> tuple[Joint, Node | None]:
    """A tensor of several parts times a constant."""
    made = t.joint([(one.laid, "") for one in whole.parts], whole.laid)
    return made, t.node((node,), lambda b, g: [b.like(g, g.laid, g.role)])


def summed(
    t: Trace, whole: tuple[Joint, Node | None], more: tuple[Joint, Node | None], parts: Sequence[tuple[str, Axes]]
) -> tuple[Joint, Node | None]:
    """The sum of two tensors of several parts, by their paths: in fp32 if the first is."""
    role = whole[0].role
    made = t.joint(
        [(one.laid, path) for one, (path, _) in zip(whole[0].parts, parts, strict=True)], whole[0].laid, role
    )

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        each = [(one.laid, "") for one in g.parts]
        return [g, g if role == "work" else b.joint(each, g.laid, "work")]

    return made, t.node((whole[1], more[1]), back)


def finish(b: Trace, _g: Storage) -> list[Storage | None]:
    """A parameter's gradient is cast, and finished."""
    b.gradient()
    return [None]


def chunks(t: Trace, whole: Joint, node: Node | None, shape: Axes, laid: Axes, each: Sequence[Axes]) -> list[Value]:
    """Pieces of a tensor by one operation: their gradients are put together once all are there. `shape`: axes of the
    whole; `laid`: how each piece lies."""
    there: list[Storage] = []
    kinds, role = _bare(t, whole), whole.role

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made = b.like(kinds, shape, role)
        there.clear()
        return [made]

    split = t.node((node,), back)

    def piece(first: bool) -> Node | None:
        def given(b: Trace, g: Storage) -> list[Storage | None]:
            there.append(g)
            return [b.elsewhere_new((), "work") if first else None]

        return t.node((split,), given)

    nodes = [piece(not number) for number in range(len(each))]
    return [Value(Joint(whole.parts, _lies(laid, axes)), axes, one) for axes, one in zip(each, nodes, strict=True)]


def _lies(laid: Axes, axes: Axes) -> Axes:
    """How a piece lies, by the letter of its own heads."""
    return laid if "N" in axes else tuple("K" if axis == "N" else axis for axis in laid)


def _bare(t: Trace, whole: Joint) -> Joint:
    """The parts of a tensor, for their kinds alone."""
    return Joint(tuple(Storage(t.elsewhere, one.laid, one.role, sign=one.sign) for one in whole.parts), whole.laid)


def zeros(t: Trace, whole: Joint) -> Callable[[Trace], Storage]:
    """What makes a tensor as wide as the whole, for the gradient of a piece."""
    kinds, laid, role = _bare(t, whole), whole.laid, whole.role
    return lambda b: b.like(kinds, laid, role)


def sliced(t: Trace, whole: Joint, node: Node | None, laid: Axes, axes: Axes) -> Value:
    """A piece of a tensor by an operation of its own: its gradient is among zeros for all else."""
    made = zeros(t, whole)
    return Value(Joint(whole.parts, laid), axes, t.node((node,), lambda b, _g: [made(b)]))


def rows_apart(t: Trace, x: Value, axes: Axes) -> Value:
    """Rows as several axes, a view, whose gradient may have to be copied for it."""
    return Value(x.storage, x.axes, t.node((x.node,), lambda b, g: [b.merged(g, ROWS, axes)]))
