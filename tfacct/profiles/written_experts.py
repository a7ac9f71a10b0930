"""Experts written out, as transformers' grouped products run them, in the dtype of their weights: autocast leaves these
in fp32."""

from __future__ import annotations

from tfacct.architecture.parts import Experts, FeedForward
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Role
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.written import LEAF, Node, Trace, Value
from tfacct.profiles.written_networks import SMOOTH, gated
from tfacct.profiles.written_operations import ROWS
from tfacct.profiles.written_parts import NETWORK, How
from tfacct.profiles.written_parts import product as linear
from tfacct.profiles.written_storage import Axes, Joint, Storage

OWN, SOFTMAX = f"{NETWORK}.experts", f"{NETWORK}.router.softmax"
SENT: Axes = ("B", "T", "A", "D")
WIDE: Axes = ("B", "T", "A", "Fe")
CHOSEN: Axes = ("B", "T", "A")


def routed(t: Trace, how: How, x: Value, part: Experts) -> Value:
    """Experts, alone or beside a network of all tokens with a gate. Raises ConfigError for others."""
    if part.shared_width is None:
        return _experts(t, how, x, part)[0]
    if part.shared is None or part.shared_alike or not part.shared_gate or part.shared_bias:
        raise ConfigError("transformers under autocast: no rule for a shared network without its gate, or with biases")
    shape = FeedForward(hidden=part.hidden, width=part.shared, gated=True, activation=part.activation)
    shared = gated(t, how, x, shape, at=f"{NETWORK}.shared", wide="Fs")
    result, _there = _experts(t, how, x, part)
    gate = linear(t, how, x, f"{NETWORK}.shared_gate", ("U",))
    gate = ops.activation(t, gate, f"{NETWORK}.shared_sigmoid", result=True)
    shared = _weighted(t, gate, shared)
    del gate
    return ops.total(t, result, shared)


def _weighted(t: Trace, gate: Value, x: Value) -> Value:
    """The shared network's result times a number for each token."""
    t.named(f"{NETWORK}.shared_weighting")

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        whole = b.new(g.laid, g.role)
        made = b.new(g.laid, g.role)
        b.after = True
        summed = b.new((*ROWS, "U"), g.role)
        del whole
        return [summed, made]

    node = t.node((gate.node, x.node), back)
    t.save(node, x.storage, gate.storage)
    t.after = True
    return Value(t.new(x.storage.laid, x.role), x.axes, node)


def _experts(t: Trace, how: How, x: Value, part: Experts) -> tuple[Value, tuple[Value, Value, Storage]]:
    """What experts give, and what the block has of its router."""
    if part.bias or not part.gated or part.latent is not None or part.activation not in SMOOTH:
        raise ConfigError("transformers under autocast: no rule for experts with biases or without a gate")
    if how.habits.chosen_first or how.habits.scored or how.habits.mixed or how.habits.clamped:
        raise ConfigError("transformers under autocast: no rule for the way its class chooses experts")
    logits = ops.linear(t, x, f"{NETWORK}.router", ("E",), trained=how.weights.trained)
    shares, index = _chosen(t, how, logits)
    return grouped(t, x, shares, trained=how.weights.trained), (logits, shares, index)


def _chosen(t: Trace, how: How, logits: Value) -> tuple[Value, Storage]:
    """What a token's experts are weighted by, and which they are."""
    wide = ops.cast(t, logits, "full")
    t.named(SOFTMAX)
    every, one = ("B", "T", "E"), ROWS
    node = t.node((wide.node,), lambda b, _g: (b.new(every, "full"),))
    probabilities = t.new(every, "full", f"{NETWORK}.routing")
    t.save(node, probabilities)
    del wide
    node = t.node((node,), lambda b, _g: (b.new(every, "full"),))
    index = t.new(CHOSEN, "index", f"{NETWORK}.chosen")
    made = t.new(CHOSEN, "full")
    t.save(node, index)
    shares = Value(made, CHOSEN, node)
    del made
    if how.habits.shared_out:

        def divided(b: Trace, _g: Storage) -> list[Storage | None]:
            whole = b.new(CHOSEN, "full")
            tensors = [b.new(CHOSEN, "full") for _ in range(3)]
            summed = b.new(one, "full")
            del tensors
            return [whole, summed]

        summed = Value(t.new(one, "full", f"{NETWORK}.sum"), one, t.node((shares.node,), lambda _b, g: (g,)))
        before = t.new(CHOSEN, "full", f"{NETWORK}.shares")
        node = t.node((shares.node, summed.node), divided)
        t.save(node, before, summed.storage)
        shares = Value(shares.storage, CHOSEN, node)  # in place
    if how.habits.narrow_shares:
        shares = ops.cast(t, shares, "work")
    return shares, index


def grouped(t: Trace, x: Value, shares: Value, *, trained: bool) -> Value:
    """Tokens in the order of their experts, none dropped, and their results in the order of tokens again."""
    t.named(f"{OWN}.sent")
    ids, order = t.new(CHOSEN, "index"), t.new(CHOSEN, "index", f"{OWN}.order")
    tokens = t.new(CHOSEN, "index", f"{OWN}.tokens")
    sent = read_off(t, x, tokens, x.axes, SENT, f"{OWN}.sent")
    del tokens
    t.named(f"{OWN}.order")
    shares = read_off(t, shares, order, CHOSEN, CHOSEN, f"{OWN}.share")
    t.named(f"{OWN}.grouped")
    numbers, count = t.new(CHOSEN, "short"), t.new(("E",), "short")
    ends = t.new(("E",), "short", f"{OWN}.ends")
    whole = product(t, sent, [f"{OWN}.{which}_proj" for which in ("gate", "up")], ends, WIDE, trained=trained)
    laid = ("B", "T", "A", views.APART)
    inner = _acted(t, whole, laid)
    del whole
    made = product(t, inner, [f"{OWN}.down_proj"], ends, SENT, trained=trained)
    del inner
    result = put_back(t, shared_out(t, made[0].parts[0], made[1], shares))  # beside what it was made of, to the end
    del ids, numbers, count
    return result


def put_back(t: Trace, weighted: Value) -> Value:
    """Results in the order of tokens, those of each summed."""
    t.named(f"{OWN}.back")
    again, places = t.new(CHOSEN, "index", f"{OWN}.back"), t.new(CHOSEN, "index")
    del places
    weighted = read_off(t, weighted, again, SENT, SENT, "")
    one, role = "A" in t.ones, weighted.role

    def summed(b: Trace, g: Storage) -> list[Storage | None]:
        return [g if one else b.new(SENT, role)]

    return Value(t.new(("B", "T", "D"), role), ("B", "T", "D"), t.node((weighted.node,), summed))


def read_off(t: Trace, x: Value, index: Storage, axes: Axes, makes: Axes, path: str) -> Value:
    """What an index says, which is kept: its gradient is put among zeros."""
    role = x.role

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        empty = b.new(axes, role)
        made = b.new(axes, role)
        del empty
        return [made]

    node = t.node((x.node,), back)
    t.save(node, index)
    t.after = True
    return Value(t.new(makes, role, path), makes, node)


def product(
    t: Trace, x: Value, names: list[str], ends: Storage, makes: Axes, *, trained: bool
) -> tuple[Joint, Node | None]:
    """Grouped products of banks that lie in one: what is made of each."""
    for name in names if trained else ():
        t.named(f"{name}.weight")
        t.node((LEAF,), views.finish)  # it is done with the first
    if trained:
        t.at = f"{names[0]}.weight"
    else:
        t.named(f"{names[0]}.multiplied")
    axes, role = x.axes, x.role

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        if trained:
            b.gradient()
        return [b.new(axes, role), None]

    node = t.node((x.node, LEAF if trained else None), back)
    t.save(node, *((x.storage,) if trained else ()), None, ends)
    t.after = True
    apart = (views.APART,) if len(names) > 1 else ()
    laid = (*makes[:-1], *apart, makes[-1])
    return t.joint([(makes, name) for name in names], laid, role), node


def _acted(t: Trace, whole: tuple[Joint, Node | None], laid: Axes) -> Value:
    gate, up = views.chunks(t, *whole, laid, (*laid, "Fe"), [WIDE] * 2)
    act = ops.activation(t, gate, f"{OWN}.act")
    return ops.times(t, act, up, f"{OWN}.product")


def shared_out(t: Trace, storage: Storage, node: Node | None, shares: Value) -> Value:
    """Results times the numbers that weight them."""
    t.named(f"{OWN}.share")
    own, narrow = storage.role, shares.role
    role: Role = "full" if "full" in (own, narrow) else "work"

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made = b.new(SENT, role)
        whole = b.new(SENT, role)
        b.after = True
        summed = b.new(CHOSEN, role)
        del whole
        return [made if own == role else b.new(SENT, own), summed if narrow == role else b.new(CHOSEN, narrow)]

    made = t.node((node, shares.node), back)
    t.save(made, storage, shares.storage)
    t.after = True
    return Value(t.new(SENT, role), SENT, made)
