"""gpt-oss's attention and experts written out: sinks beside scores, heads whose halves turn, bounded gates."""

from __future__ import annotations

from typing import TypeAlias

from tfacct.architecture.parts import Attention
from tfacct.ledger.kept import Role
from tfacct.profiles import written_experts as routing
from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.written import LEAF, Node, Trace, Value
from tfacct.profiles.written_experts import CHOSEN, OWN, SENT, WIDE
from tfacct.profiles.written_parts import ATTN, NETWORK, How
from tfacct.profiles.written_storage import Axes, Joint, Storage

PAIRS: Axes = ("B", "N", "T", "S")
EACH: Axes = ("B", "N", "T")
Pieces: TypeAlias = tuple[Joint, Node | None]
HALF: dict[Role, Role] = {"full": "work", "work": "flag"}
"""Half the numbers of a head have the bytes of a whole one in half as many."""


def turned(t: Trace, x: Value, name: str, *, last: bool = False) -> Value:
    """Heads whose halves are turned each by itself, and joined. `last`: backwards, the one that frees the angles."""
    own, axes = x.role, x.axes
    t.named(name)

    def split(b: Trace, _g: Storage) -> list[Storage | None]:
        b.after = b.after or last
        made = b.new(axes, own)
        there.clear()
        return [made]

    there: list[Storage] = []
    whole = t.node((x.node,), split)

    def piece(first: bool) -> Node | None:
        def given(b: Trace, g: Storage) -> list[Storage | None]:
            there.append(g)
            return [b.elsewhere_new((), "work") if first else None]

        return t.node((whole,), given)

    return crossed(t, (piece(True), piece(False)), own, axes, last=last)


def crossed(t: Trace, pieces: tuple[Node | None, Node | None], own: Role, axes: Axes, *, last: bool) -> Value:
    """Each half of heads times the cosines, and less, or with, the other times the sines: joined, in fp32."""

    def half(b: Trace, _g: Storage) -> list[Storage | None]:
        b.after = b.after or last
        made = b.new(axes, HALF["full"])
        return [made if own == "full" else b.new(axes, HALF[own])]

    def by_angle(source: Node | None) -> Node | None:
        node = t.node((source,), half)
        t.save(node, None)
        return node

    first, second = pieces
    one = [by_angle(first), by_angle(second)]
    less = t.node(one, lambda b, g: (g, b.new(axes, HALF["full"])))
    two = [by_angle(second), by_angle(first)]
    more = t.node(two, lambda _b, g: (g, g))
    halves = t.new(axes, "full")
    made = t.new(axes, "full")
    del halves
    return Value(made, axes, t.node((less, more), lambda _b, g: (g, g)))


def eager(t: Trace, how: How, q: Value, k: Value, v: Value, part: Attention) -> tuple[Value, Value]:
    """Scores, a sink beside those of the keys, the largest subtracted, softmax, the sink dropped, and values."""
    at, keys, values = ATTN, k, v
    if part.group != 1:
        keys, values = heads.repeated(t, k, f"{at}.k_copies"), heads.repeated(t, v, f"{at}.v_copies")
    names = f"{at}.q_rotary", f"{at}.k_copies" if part.group != 1 else f"{at}.k_rotary"
    scores = ops.scaled(t, heads.multiplied(t, q, keys, f"{at}.scores", PAIRS, names))
    scores = ops.masked(t, scores)
    whole = _sunk(t, how, scores)
    shares = _softmax(t, whole)
    weights = _without_sink(t, shares)
    if how.habits.attention:
        scores = ops.cast(t, ops.dropout(t, weights, f"{at}.softmax.drop"), "work", f"{at}.softmax.cast")
    else:
        scores = ops.cast(t, weights, "work", f"{at}.softmax.cast")
    names = f"{at}.softmax.cast", f"{at}.v_copies" if part.group != 1 else f"{at}.v_proj"
    result = heads.multiplied(t, scores, values, f"{at}.values", ("B", "N", "T", "H"), names)
    return heads.contiguous(t, result, ("B", "T", "N", "H"), f"{at}.values"), scores


def _with_sink(t: Trace, *paths: str) -> Joint:
    """Scores of keys, and that of a sink, in one tensor."""
    names = paths or ("", "")
    return t.joint(list(zip((PAIRS, EACH), names, strict=True)), (*PAIRS[:3], views.APART), "full")


def _sunk(t: Trace, how: How, scores: Value) -> Pieces:
    """Scores and the sinks', their largest subtracted: its index is kept."""
    trained = how.weights.trained
    t.named(f"{ATTN}.sinks.weight" if trained else f"{ATTN}.sinks")
    sinks = t.node((LEAF if trained else None,), views.finish)
    node = t.node((scores.node, sinks), lambda _b, g: (Joint(g.parts, PAIRS), g))
    whole = _with_sink(t)
    t.named(f"{ATTN}.largest")

    def largest(b: Trace, _g: Storage) -> list[Storage | None]:
        zeros = _with_sink(b)
        made = _with_sink(b)
        del zeros
        return [made]

    def less(b: Trace, g: Storage) -> list[Storage | None]:
        negated = _with_sink(b)
        summed = b.new(EACH, "full")
        del negated
        return [g, summed]

    most = t.node((node,), largest)
    index, values = t.new(EACH, "index", f"{ATTN}.largest"), t.new(EACH, "full")
    t.save(most, index)
    t.after = True
    del index
    made = _with_sink(t)
    del values, whole
    return made, t.node((node, most), less)


def _softmax(t: Trace, scores: Pieces) -> Pieces:
    name = f"{ATTN}.softmax"
    t.named(name)
    node = t.node((scores[1],), lambda b, _g: (_with_sink(b),))
    made = _with_sink(t, name, f"{name}.sink")
    t.save(node, made)
    t.after = True
    return made, node


def _without_sink(t: Trace, shares: Pieces) -> Value:
    """Shares of keys: a view."""
    return Value(Joint(shares[0].parts, PAIRS), PAIRS, t.node((shares[1],), lambda b, _g: (_with_sink(b),)))


def routed(t: Trace, how: How, x: Value) -> tuple[Value, Value]:
    """Experts chosen by scores in 16 bits, of which shares are made; and those shares, which the block has then."""
    trained = how.weights.trained
    _logits, shares = _chosen(t, x, trained=trained)
    return _experts(t, x, shares, trained=trained), shares


def _chosen(t: Trace, x: Value, *, trained: bool) -> tuple[Value, Value]:
    router, softmax = f"{NETWORK}.router", routing.SOFTMAX
    logits = ops.linear(t, x, router, ("E",), trained=trained, bias=True)
    t.named(softmax)

    def chosen(b: Trace, _g: Storage) -> list[Storage | None]:
        zeros = b.new(("B", "T", "E"))
        made = b.new(("B", "T", "E"))
        del zeros
        return [made]

    node = t.node((logits.node,), chosen)
    best, index = t.new(CHOSEN), t.new(CHOSEN, "index", f"{NETWORK}.chosen")
    t.save(node, index)
    node = t.node((node,), lambda b, _g: (b.new(CHOSEN),))
    made = t.new(CHOSEN, "work", f"{NETWORK}.shares")
    t.save(node, made)
    t.after = True
    del best
    return logits, Value(made, CHOSEN, node)


def _experts(t: Trace, x: Value, shares: Value, *, trained: bool) -> Value:
    """As written_experts has them, biases of each token's expert added to products in place."""
    t.named(f"{OWN}.sent")
    order = t.new(CHOSEN, "index", f"{OWN}.order")
    numbers = t.new(CHOSEN, "index", f"{OWN}.numbers")
    tokens = t.new(CHOSEN, "index", f"{OWN}.tokens")
    sent = routing.read_off(t, x, tokens, x.axes, SENT, f"{OWN}.sent")
    del tokens
    t.named(f"{OWN}.order")
    shares = routing.read_off(t, shares, order, CHOSEN, CHOSEN, f"{OWN}.share")
    t.named(f"{OWN}.grouped")
    short, count = t.new(CHOSEN, "short"), t.new(("E",), "short")
    ends = t.new(("E",), "short", f"{OWN}.ends")
    both, down = [f"{OWN}.{which}_proj" for which in ("gate", "up")], [f"{OWN}.down_proj"]
    biases = _biases(t, both, numbers, WIDE, trained=trained)
    whole = _added(t, routing.product(t, sent, both, ends, WIDE, trained=trained), biases)
    inner = _bounded(t, whole)
    del whole
    biases = _biases(t, down, numbers, SENT, trained=trained)
    made = _added(t, routing.product(t, inner, down, ends, SENT, trained=trained), biases)
    del inner
    result = routing.put_back(t, routing.shared_out(t, made[0].parts[0], made[1], shares))
    del short, count, biases
    return result


def _biases(t: Trace, names: list[str], numbers: Storage, makes: Axes, *, trained: bool) -> Pieces:
    """Of each token's experts: an index reads them off, which is kept."""
    made = [(makes, "")] * len(names)
    if not trained:
        return t.joint(made, makes, "full"), None
    for name in names:
        t.named(f"{name}.bias")
        t.node((LEAF,), views.finish)
    t.at = f"{names[0]}.bias"

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        zeros = b.joint([(("E", makes[-1]), "")] * len(names), ("E", makes[-1]), "full")
        b.gradient()
        del zeros
        return [None]

    node = t.node((LEAF,), back)
    t.save(node, numbers)
    t.after = True
    return t.joint(made, makes, "full"), node


def _added(t: Trace, whole: Pieces, biases: Pieces) -> Pieces:
    """A sum in place."""
    return whole[0], t.node((whole[1], biases[1]), lambda _b, g: (g, g))


def _bounded(t: Trace, whole: Pieces) -> Value:
    """A gate and what it lets through, bounded: x times the sigmoid of a multiple of it, times the other plus 1."""
    t.named(f"{OWN}.split")

    def bounded(name: str, masks: int) -> Value:
        made = views.zeros(t, whole[0])
        view = t.node((whole[1],), lambda b, _g: (made(b),))

        def back(b: Trace, _g: Storage) -> list[Storage | None]:
            flags = [b.new(WIDE, "flag") for _ in range(masks)]
            given = b.new(WIDE, "full")
            del flags
            return [given]

        node = t.node((view,), back)
        t.save(node, whole[0])
        return Value(t.new(WIDE, "full", name), WIDE, node)

    gate = bounded(f"{OWN}.act.gate", 1)
    up = bounded("", 3)
    t.after = True
    slope = ops.scaled(t, gate)
    slope = ops.activation(t, slope, f"{OWN}.act", result=True)
    act = ops.times(t, gate, slope, f"{OWN}.act.product")
    del slope
    more = ops.shifted(t, up, f"{OWN}.act.up")
    return ops.times(t, more, act, f"{OWN}.product")
