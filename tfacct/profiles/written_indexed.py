"""Falcon's block written out: each product casts its weight anew, and adds its bias in fp32 behind that; keys and
values are read off one product by slices, or by an index that is kept."""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.architecture.parts import Attention
from tfacct.base.errors import ConfigError
from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.written import LEAF, Node, Trace, Value
from tfacct.profiles.written_networks import activated
from tfacct.profiles.written_operations import ROWS
from tfacct.profiles.written_parts import ATTN, LETTERS, NETWORK, How, Parts, again, lent, norm
from tfacct.profiles.written_storage import Axes, Joint, Storage

SUM = "blocks.*.sum"
Named = Sequence[tuple[str, Axes]]


def block_of_falcon(t: Trace, how: How, parts: Parts) -> Value:
    """FalconDecoderLayer, its parts side by side."""
    x = t.start
    own = norm(t, how, x, f"{ATTN}_norm", parts.attn_norm)
    other = own if parts.mlp_norm is None else norm(t, how, x, f"{NETWORK}_norm", parts.mlp_norm)
    attended, _weights = again(t, how, own, lambda t, own: _attention(t, how, own, parts.attn))
    h = _product(t, how, other, f"{NETWORK}.up_proj", ("F",), bias=parts.mlp.bias)
    h = activated(t, h, f"{NETWORK}.act", parts.mlp.activation)
    h = _product(t, how, h, f"{NETWORK}.down_proj", ("D",), bias=parts.mlp.bias)
    t.named(SUM)
    both = Value(h.storage, h.axes, t.node((h.node, attended.node), lambda _b, g: (g, g)))  # in place
    del h
    left = ops.dropout(t, both, SUM) if how.habits.residual else both
    return ops.total(t, x, left)


def _product(t: Trace, how: How, x: Value, name: str, makes: Axes, *, bias: bool) -> Value:
    made, node = _products(t, how, x, [(name, makes)], makes, bias=bias)
    return Value(made.parts[0], (*ROWS, *makes), node)


def _products(t: Trace, how: How, x: Value, parts: Named, laid: Axes, *, bias: bool) -> tuple[Joint, Node | None]:
    """FalconLinear, and its adapter, if it has one."""
    whole = _linear(t, x, parts, laid, bias=bias, trained=how.weights.trained)
    return whole if parts[0][0] not in how.weights.on else lent(t, how, x, whole, parts, laid)


def _linear(t: Trace, x: Value, parts: Named, laid: Axes, *, bias: bool, trained: bool) -> tuple[Joint, Node | None]:
    flows = x.node is not None
    reads = tuple(axis for axis in x.axes if axis not in ROWS)
    first, inner = parts[0][0], (*laid, *reads)

    def each(*more: str, path: str = "", front: Axes = ()) -> list[tuple[Axes, str]]:
        return [((*front, *makes, *more), f"{name}{path}" if path else "") for name, makes in parts]

    def named(kind: str) -> str:
        for name, _ in parts:
            t.named(f"{name}.{kind}")
            t.node((LEAF,), views.finish)
        return f"{first}.{kind}"

    if trained:
        t.at = named("weight")
    weight = t.joint(each(*reads, path=".weight_cast"), inner)
    cast_of = t.node((LEAF if trained else None,), views.finish)
    if x.role == "full" and (trained or flows):
        t.named(f"{first}.cast")
    read = ops.cast(t, x, "work", f"{first}.in")
    t.named(f"{first}.matmul")
    rows = t.merged(read.storage, ROWS, reads)

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        given = b.new((*ROWS, *reads)) if flows else None
        own = b.joint(each(*reads), inner) if trained else None
        b.after = True
        return [given, own]

    node = t.node((read.node, cast_of), back)
    t.save(node, *((rows,) if trained else ()), *((weight,) if flows else ()))
    t.after = True
    del weight
    done = [(axes, "" if bias else name) for (name, _), (axes, _) in zip(parts, each(front=ROWS), strict=True)]
    made = t.joint(done, (*ROWS, *laid))
    flat = t.node((node,), lambda b, g: [b.merged(g, ROWS, laid)])
    if not bias:
        return made, flat
    if trained:
        t.at = named("bias")

    def added(b: Trace, g: Storage) -> list[Storage | None]:
        narrow = b.joint(each(front=ROWS), g.laid)
        if trained:
            b.gradient()
        return [narrow]

    summed = t.node((flat,), added)
    wide = [(axes, name) for (name, _), (axes, _) in zip(parts, each(front=ROWS), strict=True)]
    return t.joint(wide, (*ROWS, *laid), "full"), summed


def _attention(t: Trace, how: How, h: Value, part: Attention) -> tuple[Value, Value | None]:
    """FalconAttention, and what values were weighted by."""
    at = ATTN
    each = [(f"{at}.{which}_proj", (letter, "H")) for which, letter in LETTERS.items()]
    laid = (views.APART,) if how.habits.indexed and not how.habits.copies_first else ("K", views.APART, "H")
    whole, node = _products(t, how, h, each, laid, bias=part.qkv_bias)
    q, k, v = _split(t, how, whole, node, part)
    q, k = views.turned(t, q, how.turn, last=True), views.turned(t, k, how.turn)
    grouped = "K" in k.axes
    if how.attention == "sdpa":
        values = heads.efficient(t, q, k, v, at, aligned=how.aligned)
        weights = None
    else:
        values, weights = _scored(t, q, k, v, expands=grouped and bool(part.group != 1))
    rows = heads.contiguous(t, values, ("B", "T", "N", "H"), f"{at}.values")
    del values
    return _product(t, how, rows, f"{at}.o_proj", ("D",), bias=part.out_bias), weights


def _split(t: Trace, how: How, whole: Joint, node: Node | None, part: Attention) -> tuple[Value, Value, Value]:
    t.named(f"{ATTN}.split")
    if how.habits.copies_first:
        return _copied(t, whole, node, part)
    if not how.habits.indexed:
        laid = ("B", "T", "N", views.APART, "H")
        found = [views.sliced(t, whole, node, laid, ("B", letter, "T", "H")) for letter in LETTERS.values()]
        return found[0], found[1], found[2]
    q = views.sliced(t, whole, node, ("B", "T", views.APART, "N", "H"), ("B", "N", "T", "H"))
    k, v = (_indexed(t, whole, node, which) for which in "kv")
    return q, k, v


def _indexed(t: Trace, whole: Joint, node: Node | None, which: str) -> Value:
    """A copy of what an index says, which is kept: its gradient is among zeros for all else."""
    t.named(f"{ATTN}.{which}_split")
    index = t.new((), "index", f"{ATTN}.{which}_index")
    whole_of = views.zeros(t, whole)

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        empty = whole_of(b)
        made = whole_of(b)
        del empty
        return [made]

    cut = t.node((node,), back)
    t.save(cut, index)
    t.after = True
    return Value(t.new(("B", "T", "K", "H"), whole.role, f"{ATTN}.{which}_proj"), ("B", "K", "T", "H"), cut)


def _copied(t: Trace, whole: Joint, node: Node | None, part: Attention) -> tuple[Value, Value, Value]:
    """Keys and values copied for each query head, and queries beside them."""
    if part.group != 1 and part.kv_heads == 1:
        raise ConfigError("transformers under autocast: no rule for one head of keys that is copied before it turns")
    laid = ("B", "T", "K", views.APART, "N", "H")
    q = views.sliced(t, whole, node, laid, ("B", "N", "T", "H"))
    k, v = (_indexed(t, whole, node, which) for which in "kv")
    if part.group == 1:
        k, v = (Value(one.storage, ("B", "N", "T", "H"), one.node) for one in (k, v))
        return q, k, v
    found = [Value(t.new(("B", "T", "N", "H"), q.role), q.axes, t.node((q.node,), lambda _b, g: (g,)))]
    for one, which in ((k, "k"), (v, "v")):
        found.append(_for_each(t, one, f"{ATTN}.{which}_copies"))
    return found[0], found[1], found[2]


def _for_each(t: Trace, x: Value, path: str) -> Value:
    role = x.role
    node = t.node((x.node,), lambda b, _g: (b.new(("B", "T", "K", "H"), role),))
    return Value(t.new(("B", "T", "N", "H"), role, path), ("B", "N", "T", "H"), node)


def _scored(t: Trace, q: Value, k: Value, v: Value, *, expands: bool) -> tuple[Value, Value]:
    """Scores divided in place, a softmax in fp32 that nothing casts back, and values."""
    at, pairs = ATTN, ("B", "N", "T", "S")
    names = f"{at}.q_rotary", f"{at}.k_copies" if expands else f"{at}.k_rotary"
    scores = heads.multiplied(t, q, k, f"{at}.scores", pairs, names, expands=expands)
    scores = Value(scores.storage, pairs, t.node((scores.node,), lambda b, g: (b.new(g.laid, g.role),)))
    masked = ops.masked(t, scores)
    weights = heads.softmax(t, masked, f"{at}.softmax")
    del masked, scores
    names = f"{at}.softmax.cast", f"{at}.v_copies" if expands else f"{at}.v_proj"
    rows = heads.multiplied(t, weights, v, f"{at}.values", ("B", "N", "T", "H"), names, expands=expands)
    return rows, weights
