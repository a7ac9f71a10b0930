"""Eager attention written out: scores, softmax and values one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_parts import ATTN, How

Three: TypeAlias = tuple[Value, Value, Value]
"""Queries, keys and values."""


def weighed(
    t: Trace,
    how: How,
    three: Three,
    names: tuple[str, str, str],
    softcap: float | None = None,
    *,
    at: str = ATTN,
    read: str = "S",
    add: Callable[[Trace, Value], Value] | None = None,
) -> tuple[Value, Value]:
    """Scores, softmax and values one after the other. `names` of what is cast for a product. `read`: the letter of what
    is looked at; `add`: what is added to scores."""
    q, keys, values = three
    wide, (of_q, of_keys, of_values) = q.role, (f"{at}.{name}" for name in names)
    weights = heads.multiplied(t, q, keys, f"{at}.scores", ("B", "N", "T", read), (of_q, of_keys))
    weights = ops.scaled(t, weights)
    if softcap is not None:
        weights = ops.scaled(t, weights)
        weights = ops.activation(t, weights, f"{at}.softcap", result=True)
        weights = ops.scaled(t, weights)
    if add is not None:
        weights = add(t, weights)
    if not how.seen:
        weights = ops.masked(t, weights)
    if how.habits.narrow_softmax:  # which asks for no dtype, and gets fp32
        weights = heads.softmax(t, weights, f"{at}.softmax", narrow=t.plain)
        if how.conv:
            weights = ops.cast(t, weights, "work", f"{at}.softmax.cast")
    else:
        weights = ops.cast(t, heads.softmax(t, weights, f"{at}.softmax"), wide, f"{at}.softmax.cast")
    if how.habits.attention:
        weights = ops.dropout(t, weights, f"{at}.softmax.drop")
    last = values.axes[-1]
    made = ("B", "N", "T", last)
    result = heads.multiplied(t, weights, values, f"{at}.values", made, (f"{at}.softmax.cast", of_values))
    return heads.contiguous(t, result, ("B", "T", "N", last), f"{at}.values"), weights
