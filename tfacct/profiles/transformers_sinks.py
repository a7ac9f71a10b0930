"""Eager attention with sinks: one learned score per head stands beside those of the keys, as GptOssAttention has it."""

from __future__ import annotations

from collections.abc import Mapping

from tfacct.architecture.parts import Attention
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Kept, Moment, Run
from tfacct.profiles.base import Habits

PAIRS, ROWS = "B K G T S", "B K G T"
"""Axes of the scores, and of what each query has once, as the sink's."""
ONE, ROW = Held(PAIRS), Held(ROWS)
SUNK = (ONE, ROW)
"""Scores with the sink's beside them."""


def sunk(at: str, names: Mapping[str, str], part: Attention, habits: Habits, batch: Size) -> Run:
    """Scores, their largest subtracted, softmax in the pass's dtype, the sink's share dropped, and values.

    The scores with the sink's stay until the values are summed; the index of the largest is kept for its gradient.
    """
    copied = not isinstance(part.group, int) or part.group > 1
    viewed = copied and batch == 1 and part.kv_heads == 1  # a copy of one head for all is a view
    heads = "K" if viewed else "N"
    keys, values = (f"{at}.k_copies", f"{at}.v_copies") if copied else (names["k"], f"{at}.v_proj")
    scores, softmax, summed = (f"{at}.{name}" for name in ("scores", "softmax", "values"))
    sinks, largest, drops = f"{at}.sinks.weight", f"{at}.largest", habits.attention
    shares = (softmax,) if drops else (softmax, summed)
    kept = [
        Kept(names["q"], "B T N H", by=(scores,)),
        Kept(keys, f"B S {heads} H", by=(scores,)),
        Kept(largest, ROWS, by=(largest,), role="index"),
        *(Kept(name, axes, by=shares) for name, axes in ((softmax, PAIRS), (f"{softmax}.sink", ROWS))),
    ]
    if drops:
        kept.append(Kept(f"{softmax}.drop", PAIRS, by=(f"{softmax}.drop",), role="flag"))
        kept.append(Kept(f"{softmax}.dropped", PAIRS, by=(summed,)))
    kept.append(Kept(values, f"B S {heads} H", by=(summed,)))
    kept.append(Kept(f"{at}.values", "B T N H", by=(f"{at}.o_proj.weight",)))
    copies = Held("B S N H") if copied else Held("B S K H")
    moments = [
        Moment(summed, (Held("B T N H"), ONE, copies)),
        Moment(softmax, (ONE, *SUNK, copies)),
        Moment(softmax, (*SUNK, *SUNK, copies)),
        Moment(sinks, (*SUNK, *SUNK, *SUNK, ROW, copies), done=False),
        Moment(scores, (ONE, Held("B T N H"), copies, copies)),
    ]
    if drops:
        moments.append(Moment(f"{softmax}.drop", (Held(PAIRS, times=2), copies)))
    order = (scores, largest, sinks, softmax, *((f"{softmax}.drop",) if drops else ()), summed)
    own = (Held("B S K H"),)  # queries and keys lie head by head once they are turned: only values and copies do not
    apart = own if (not viewed if copied else batch > 1 and part.heads != 1) else ()
    before = own if copied and not viewed else ()
    early = (*before, *own, *((Held("B S N H"),) if copied and part.kv_heads != 1 else ()))
    return Run(order, tuple(kept), tuple(moments), _ahead(at, habits, early, (*before, *apart)))


def _ahead(at: str, habits: Habits, early: tuple[Held, ...], late: tuple[Held, ...]) -> tuple[Moment, ...]:
    """Moments of the forward pass. `early` and `late`: what stays before the values are summed, and from there on."""
    softmax, summed, out = f"{at}.softmax", f"{at}.values", f"{at}.o_proj.weight"
    dropped = [Moment(f"{softmax}.drop", (ONE, ONE, *SUNK, *early))] if habits.attention else []
    return (
        Moment(softmax, (ONE, *SUNK, ROW, *early)),  # while the largest is subtracted
        *dropped,
        Moment(summed, (Held("B T N H", times=2), *SUNK, *late)),
        Moment(out, (Held("B T D"), *late)),
    )
