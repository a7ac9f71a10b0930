"""GPT-Neo's attention under autocast, written out: queries and keys are cast to fp32, and back for their product."""

from __future__ import annotations

from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_parts import ATTN, How


def weighed(t: Trace, how: How, q: Value, k: Value, v: Value) -> tuple[Value, Value]:
    """Scores, of which those of tokens that are not seen are replaced, softmax and values. What values were weighted by
    is the caller's too."""
    at = ATTN
    values, weights = _attend(t, how, q, k, v)
    return heads.contiguous(t, values, ("B", "T", "N", "H"), f"{at}.values"), weights


def _attend(t: Trace, how: How, q: Value, k: Value, v: Value) -> tuple[Value, Value]:
    """The function of its own that does it, which has the casts to its end."""
    at = ATTN
    q, k = (ops.cast(t, one, "full", f"{at}.{which}_wide") for one, which in ((q, "q"), (k, "k")))
    weights = heads.multiplied(t, q, k, f"{at}.scores", ("B", "N", "T", "S"), (f"{at}.q_narrow", f"{at}.k_narrow"))
    least = t.new((), "work")
    weights = _replaced(t, weights)
    weights = ops.masked(t, weights)
    weights = heads.softmax(t, weights, f"{at}.softmax")
    weights = ops.cast(t, weights, "work", f"{at}.softmax.cast")
    if how.habits.attention:
        weights = ops.dropout(t, weights, f"{at}.softmax.drop")
    names = f"{at}.softmax.cast", f"{at}.v_proj"
    values = heads.multiplied(t, weights, v, f"{at}.values", ("B", "N", "T", "H"), names)
    del least
    return values, weights


def _replaced(t: Trace, scores: Value) -> Value:
    """Scores where a mask lets them be, which the block has."""
    node = t.node((scores.node,), lambda b, g: (b.new(g.laid, g.role),))
    t.save(node, None)
    return Value(t.new(scores.storage.laid, scores.role), scores.axes, node)
