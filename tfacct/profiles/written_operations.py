"""Operations of a class that is written out, under autocast: products, norms, activations, what is done to heads."""

from __future__ import annotations

from typing import NamedTuple

from tfacct.ledger.kept import Role
from tfacct.profiles.written import LEAF, Trace, Value
from tfacct.profiles.written_storage import Axes, Storage

ROWS: Axes = ("B", "T")
POSITIONS = frozenset((*ROWS, "J"))
"""Axes of a stream's positions, or of those of a source."""


class Weights(NamedTuple):
    """What of a model is trained. `rank`: adapters of one are beside the products `on`; the rest is frozen then.
    `drops`: they drop numbers of what they read."""

    on: frozenset[str] = frozenset()
    rank: int = 0
    drops: bool = False

    @property
    def trained(self) -> bool:
        """True if the model's own are."""
        return not self.rank


def cast(t: Trace, x: Value, role: Role, path: str = "") -> Value:
    """A copy in another dtype; the same where it is in it."""
    if x.role == role or t.full:
        return x
    once = t.leaf and role == "work" and x.storage is t.start.storage
    if once and t.narrow is not None:
        return t.narrow
    given = x.role
    made = (t.elsewhere_new if once and not t.keeps else t.new)(dense(x), role, path)
    result = Value(made, x.axes, t.node((x.node,), lambda b, g: (b.new(g.laid, given),)))
    if once:
        t.narrow = result
        t.casts.append((t.at, made.kind, path))
    return result


def dense(x: Value) -> Axes:
    """Axes of a copy as they lie: as in the original, if all of them do. Of a piece, without what lies between."""
    laid = tuple("Hr" if axis == "H" and "Hr" in x.axes else axis for axis in x.storage.laid)
    return tuple(axis for axis in laid if axis in x.axes) if set(x.axes) <= set(laid) else x.axes


def total(t: Trace, x: Value, y: Value, path: str = "") -> Value:
    """A sum, in fp32 if one of both is."""
    role: Role = "full" if "full" in (x.role, y.role) else "work"
    roles = x.role, y.role
    both = x.node is not None, y.node is not None

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        return [
            None if not needed else g if g.role == own else b.new(g.laid, own)
            for own, needed in zip(roles, both, strict=True)
        ]

    return Value(t.new(x.storage.laid, role, path), x.axes, t.node((x.node, y.node), back))


def scaled(t: Trace, x: Value, path: str = "") -> Value:
    """A multiple of all numbers, by a constant."""
    node = t.node((x.node,), lambda b, g: (b.new(g.laid, g.role),))
    return Value(t.new(dense(x), x.role, path), x.axes, node)


def masked(t: Trace, scores: Value) -> Value:
    """Scores and a mask, under autocast in fp32."""
    own = scores.role
    role: Role = own if t.plain else "full"
    made = t.new(scores.storage.laid, role)
    return Value(made, scores.axes, t.node((scores.node,), lambda b, g: (g if own == role else b.new(g.laid, own),)))


def dropout(t: Trace, x: Value, name: str) -> Value:
    """Numbers dropped: the mask is kept."""
    t.named(name)
    laid = dense(x)
    made, mask = t.new(laid, x.role, f"{name}.result"), t.new(laid, "flag", name)
    node = t.node((x.node,), lambda b, g: (b.new(g.laid, g.role),))
    t.save(node, mask)
    t.after = True
    return Value(made, x.axes, node)


def activation(t: Trace, x: Value, name: str, *, result: bool = False) -> Value:
    """An activation, which saves its input, or its `result`."""
    t.named(name)
    laid = dense(x)
    node = t.node((x.node,), lambda b, g: (b.new(g.laid, g.role),))
    if not result:
        t.save(node, x.storage)
        t.after = True
    made = t.new(laid, x.role, f"{name}.result")
    if result:
        t.save(node, made)
        t.after = True
    return Value(made, x.axes, node)


def shifted(t: Trace, x: Value, path: str = "") -> Value:
    """A constant added to all numbers."""
    return Value(t.new(x.storage.laid, x.role, path), x.axes, x.node)


def cubed(t: Trace, x: Value, name: str) -> Value:
    """NewGELUActivation: a power runs in fp32, and so does all that is made of it."""
    half = scaled(t, x, path=f"{name}.half")
    power = _power(t, x, f"{name}.cube")
    inner = scaled(t, power)
    del power
    inner = total(t, inner, x)
    inner = scaled(t, inner)
    inner = activation(t, inner, f"{name}.tanh", result=True)
    inner = shifted(t, inner, f"{name}.sum")
    return times(t, half, inner, name)


def _power(t: Trace, x: Value, name: str) -> Value:
    """A third power, in fp32."""
    x = cast(t, x, "full", f"{name}.upcast")
    t.named(name)

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        square = b.new(g.laid, "full")
        threefold = b.new(g.laid, "full")
        made = b.new(g.laid, "full")
        del square, threefold
        return [made]

    node = t.node((x.node,), back)
    t.save(node, x.storage)
    t.after = True
    return Value(t.new(x.storage.laid, "full"), x.axes, node)


def times(t: Trace, x: Value, y: Value, name: str) -> Value:
    """Two tensors multiplied, number by number: in fp32 if one of both is."""
    t.named(name)
    role: Role = "full" if "full" in (x.role, y.role) else "work"
    roles, needed = (x.role, y.role), (x.node is not None, y.node is not None)

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        made = [b.new(g.laid, g.role) if so else None for so in needed]
        b.after = True
        return [
            one if one is None or one.role == own else b.new(g.laid, own) for one, own in zip(made, roles, strict=True)
        ]

    node = t.node((x.node, y.node), back)
    t.save(node, *((y.storage,) if needed[0] else ()), *((x.storage,) if needed[1] else ()))
    t.after = True
    return Value(t.new(dense(x), role, f"{name}.result"), x.axes, node)


def first(t: Trace, x: Value) -> Value:
    """What stands at the first position: a view, whose gradient is among zeros for all others."""
    role = x.role
    t.named("pooler.first")
    node = t.node((x.node,), lambda b, _g: (b.new(("B", "T", "D"), role),))
    return Value(x.storage, ("B", "D"), node)


def linear(
    t: Trace, x: Value, name: str, makes: Axes, *, trained: bool = True, bias: bool = False, conv: bool = False
) -> Value:
    """A product with a weight, both cast: a weight that is trained once, for it stays until the forward pass ends.

    `conv`: GPT-2's own class, which casts its weight first and its bias last.
    """
    rows_of = tuple(axis for axis in x.axes if axis in POSITIONS)
    reads = tuple(axis for axis in x.axes if axis not in POSITIONS)
    wide, flows = x.role, x.node is not None
    weight = (*makes, *reads)
    trains_bias = trained and bias

    def parameter(kind: str) -> Value:
        laid = makes if kind == "bias" else weight
        if not trained:
            return Value(t.new(laid, "work", f"{name}.{kind}_cast"), laid, None)
        t.named(f"{name}.{kind}")
        path = f"{name}.{kind}_cast"
        saved = kind == "weight" and t.keeps and flows
        made = t.new(laid, "work", path) if saved or t.cache is not None else t.elsewhere_new(laid, "work", path)
        if t.cache is not None:
            t.cache.append(made)
        t.casts.append((t.at, made.kind, path if saved else ""))
        return Value(made, laid, t.node((LEAF,), _finishes))

    b_cast = parameter("bias") if bias and not conv else None
    w_cast = parameter("weight")
    if wide == "full" and (trained or flows):
        t.named(f"{name}.cast")
    read = cast(t, x, "work", f"{name}.in")
    if bias and conv:
        b_cast = parameter("bias")
    t.named(f"{name}.matmul")
    if conv:
        t.record()
    rows = t.merged(read.storage, rows_of, reads)

    def flat(b: Trace, g: Storage) -> list[Storage | None]:
        return [b.merged(g, rows_of, makes)]

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        given = [b.new((*rows_of, *reads)) if flows else None, b.new(weight) if trained else None]
        b.after = True
        b.let_go()
        return [*given, b.new(makes) if trains_bias else None]

    node = t.node((read.node, w_cast.node, None if b_cast is None else b_cast.node), back)
    t.save(node, *((rows,) if trained else ()), *((w_cast.storage,) if flows else ()))
    t.after = True
    made = t.new((*rows_of, *makes), "work", name)
    return Value(made, (*rows_of, *makes), t.node((node,), flat))


def _finishes(b: Trace, _g: Storage) -> list[Storage | None]:
    """A cast of a parameter: its gradient is cast, and finished."""
    b.gradient()
    return [None]


def layer_norm(t: Trace, x: Value, name: str, *, trained: bool = True) -> Value:
    """torch's LayerNorm, one operation, in fp32."""
    x = cast(t, x, "full", f"{name}.upcast")
    t.named(f"{name}.weight" if trained else f"{name}.normed")
    flows = x.node is not None

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        if trained:
            b.gradient()
        return [b.new(g.laid, "full") if flows else None, None]

    node = t.node((x.node, LEAF if trained else None), back)
    t.save(node, x.storage)
    made = t.new(x.storage.laid, "full", name)
    sums = [t.new(ROWS, "full", f"{name}.{which}") for which in ("mean", "deviation")]
    t.save(node, *sums)
    t.after = True
    return Value(made, x.axes, node)


def loss_narrow(t: Trace, logits: Value) -> Value:
    """A cross entropy of scores in 16 bits: torch asks for their dtype by name, so it takes logarithms in it, and casts
    these for the choice of each target."""
    t.named("loss.softmax")
    node = t.node((logits.node,), lambda b, g: (b.new(g.laid, g.role),))
    chances = Value(t.new(logits.storage.laid, "work", "loss.log_probabilities"), logits.axes, node)
    t.save(node, chances.storage)
    t.after = True
    wide = cast(t, chances, "full", "loss.copy")
    t.named("loss.choose")
    axes = wide.axes
    node = t.node((wide.node,), lambda b, _g: (b.new(axes, "full"),))
    t.save(node, wide.storage)
    loss, weight = t.new((), "full"), t.new((), "full", "loss.weight")
    t.save(node, weight)
    return Value(loss, (), node)


def loss_wide(t: Trace, logits: Value) -> Value:
    """A cross entropy of a copy of the scores in fp32."""
    wide = cast(t, logits, "full", "loss.copy")
    t.named("loss.softmax")
    node = t.node((wide.node,), lambda b, g: (b.new(g.laid, "full"),))
    chances = Value(t.new(wide.storage.laid, "full", "loss.log_probabilities"), wide.axes, node)
    t.save(node, chances.storage)
    t.after = True
    t.named("loss.choose")
    axes = wide.axes
    node = t.node((chances.node,), lambda b, _g: (b.new(axes, "full"),))
    t.save(node, chances.storage)
    loss, weight = t.new((), "full"), t.new((), "full", "loss.weight")
    t.save(node, weight)
    return Value(loss, (), node)


def rms_norm(
    t: Trace,
    x: Value,
    name: str,
    each: Axes,
    *,
    trained: bool = True,
    late_cast: bool = False,
    less_one: bool = False,
    weighed: bool = True,
) -> Value:
    """The classes' RMSNorm, written out in fp32: a square, its mean, a root, a product, a cast back, and the weight's
    product. `each`: axes of what is normed together. `late_cast`: the cast comes last. `less_one`: the weight is
    stored less 1, and that is added each time. `weighed`: there is one."""
    whole, one, own = x.axes, tuple(axis for axis in x.axes if axis not in each), x.role
    x = cast(t, x, "full", f"{name}.upcast")

    def back_square(b: Trace, _g: Storage) -> list[Storage | None]:
        laid = whole_laid
        first = b.new(laid, "full")
        second = b.new(laid, "full")
        made = b.new(laid, "full")
        del first, second
        return [made]

    def back_mean(b: Trace, _g: Storage) -> list[Storage | None]:
        return [b.new(whole_laid, "full")]

    def back_root(b: Trace, _g: Storage) -> list[Storage | None]:
        first = b.new(one, "full")
        second = b.new(one, "full")
        made = b.new(one, "full")
        del first, second
        return [made]

    def back_scale(b: Trace, _g: Storage) -> list[Storage | None]:
        made = b.new(whole_laid, "full")
        root = b.new(whole_laid, "full")
        b.after = True
        summed = b.new(one, "full")
        del root
        return [made, summed]

    whole_laid = dense(x)
    t.named(f"{name}.square")
    node = t.node((x.node,), back_square)
    t.save(node, x.storage)
    t.after = True
    squares = Value(t.new(whole_laid, "full"), whole, node)
    variance = Value(t.new(one, "full"), one, t.node((squares.node,), back_mean))
    del squares, node
    shifted = Value(t.new(one, "full"), one, variance.node)
    if less_one:  # written as one expression
        del variance
    t.named(f"{name}.root")
    node = t.node((shifted.node,), back_root)
    root = Value(t.new(one, "full", f"{name}.rms"), one, node)
    t.save(node, root.storage)
    t.after = True
    del shifted, node
    t.named(f"{name}.scale")
    node = t.node((x.node, root.node), back_scale)
    t.save(node, x.storage, root.storage)
    t.after = True
    x = Value(t.new(whole_laid, "full", f"{name}.scaled"), whole, node)
    del root, node
    narrow = x if late_cast else cast(t, x, own, f"{name}.scaled")
    if not weighed:
        return narrow
    result = (_above_one if less_one else _weighed)(t, narrow, name, each, trained=trained)
    del narrow
    return cast(t, result, own, f"{name}.cast") if late_cast else result


def _above_one(t: Trace, x: Value, name: str, each: Axes, *, trained: bool) -> Value:
    """A norm's weight and 1, in fp32, times what it scales."""
    flows = x.node is not None
    t.named(f"{name}.weight" if trained else f"{name}.plus_one")
    weight = Value(t.new(each, "full", f"{name}.plus_one"), each, t.node((LEAF if trained else None,), _finishes))
    t.named(f"{name}.multiplied")

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        made = b.new(g.laid, "full") if flows else None
        whole = b.new(g.laid, "full") if trained else None
        b.after = True
        summed = b.new(each, "full") if trained else None
        del whole
        return [made, summed]

    node = t.node((x.node, weight.node), back)
    t.save(node, *((weight.storage,) if flows else ()), *((x.storage,) if trained else ()))
    t.after = True
    return Value(t.new(x.storage.laid, "full", name), x.axes, node)


def _weighed(t: Trace, x: Value, name: str, _: Axes, *, trained: bool) -> Value:
    """A norm's weight, in fp32 under autocast, times what it scales."""
    own, flows = x.role, x.node is not None
    role: Role = own if t.plain else "full"
    t.named(f"{name}.weight" if trained else f"{name}.multiplied")

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        summed = b.new(g.laid, role) if trained else None
        made = b.new(g.laid, role) if flows else None
        b.after = True
        if trained:
            b.gradient()
        del summed
        if made is not None and own != role:
            made = b.new(g.laid, own)
        return [made, None]

    node = t.node((x.node, LEAF if trained else None), back)
    t.save(node, *((None,) if flows else ()), *((x.storage,) if trained else ()))
    t.after = True
    return Value(t.new(x.storage.laid, role, name), x.axes, node)
