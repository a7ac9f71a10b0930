"""BLOOM's block written out: scores are added to biases by distance as they are made, and its GELU is Python's own."""

from __future__ import annotations

from tfacct.architecture.parts import Attention
from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_parts import ATTN, LETTERS, NETWORK, How, Parts, again, norm, product, products
from tfacct.profiles.written_storage import Storage

PAIRS = ("B", "N", "T", "S")


def block_of_bloom(t: Trace, how: How, parts: Parts) -> Value:
    """BloomBlock."""
    x = t.start
    assert parts.mlp_norm is not None
    h = norm(t, how, x, f"{ATTN}_norm", parts.attn_norm)
    mid, _weights = again(t, how, h, lambda t, h: _attention(t, how, h, x, parts.attn))
    h = norm(t, how, mid, f"{NETWORK}_norm", parts.mlp_norm)
    up = product(t, how, h, f"{NETWORK}.up_proj", ("F",), bias=parts.mlp.bias)
    up = gelu(t, up, f"{NETWORK}.act")
    return _added(t, how, product(t, how, up, f"{NETWORK}.down_proj", ("D",), bias=parts.mlp.bias), mid, NETWORK)


def _added(t: Trace, how: How, result: Value, x: Value, at: str) -> Value:
    out = ops.dropout(t, result, f"{at}.drop") if how.habits.residual else result
    return ops.total(t, x, out, f"{at}.sum")


def _attention(t: Trace, how: How, h: Value, x: Value, part: Attention) -> tuple[Value, Value]:
    """Attention and its sum with the stream, and what values were weighted by."""
    at = ATTN
    each = [(f"{at}.{which}_proj", (letter, "H")) for which, letter in LETTERS.items()]
    whole, node = products(t, how, h, each, ("N", views.APART, "H"), bias=part.qkv_bias)
    laid = ("B", "T", "N", views.APART, "H")
    made = []
    for path, (letter, _) in each:
        one = views.sliced(t, whole, node, laid, ("B", letter, "T", "H"))
        made.append((one, path))
        del one
    q, k, v = (heads.batched(t, one, path) for one, path in made)
    del made
    scores = _biased(t, q, k, f"{at}.scores")
    masked = ops.masked(t, scores)
    weights = heads.softmax(t, masked, f"{at}.softmax")
    weights = ops.cast(t, weights, "work", f"{at}.softmax.cast")
    if how.habits.attention:
        weights = ops.dropout(t, weights, f"{at}.softmax.drop")
    names = f"{at}.softmax.cast", f"{at}.v_proj"
    rows = heads.multiplied(t, weights, v, f"{at}.values", ("B", "N", "T", "H"), names)
    rows = heads.contiguous(t, rows, ("B", "T", "N", "H"), f"{at}.values")
    out = product(t, how, rows, f"{at}.o_proj", ("D",), bias=part.out_bias)
    return _added(t, how, out, x, at), weights


def _biased(t: Trace, q: Value, k: Value, name: str) -> Value:
    """Products of heads added to biases by distance, which are cast: each gradient is made, then multiplied."""
    t.named(name)
    own, other = q.axes, k.axes

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made: list[Storage | None] = []
        for axes in (own, other):
            raw = b.new(axes)
            made.append(b.new(axes))
            del raw
        return made

    node = t.node((q.node, k.node), back)
    t.save(node, q.storage, k.storage)
    bias = t.new(("B", "N", "T"))
    t.after = True
    made = Value(t.new(PAIRS, "work", name), PAIRS, node)
    del bias
    return made


def gelu(t: Trace, x: Value, name: str) -> Value:
    """BloomGelu: one operation to autograd, that saves what it reads. Forwards four tensors are there beside that, and
    backwards five beside the gradient."""
    t.named(name)
    laid = x.storage.laid

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        tensors = [b.new(g.laid) for _ in range(5)]
        del tensors[2:]
        tensors.append(b.new(g.laid))
        return [tensors.pop()]

    node = t.node((x.node,), back)
    t.save(node, x.storage)
    t.after = True
    tensors = [t.new(laid) for _ in range(4)]
    del tensors
    return Value(t.new(laid, "work", f"{name}.result"), x.axes, node)
