"""Eager attention under autocast: queries and keys meet in 16 bits, as they are or cast behind a turn in fp32."""

from __future__ import annotations

from collections.abc import Mapping

from tfacct.architecture.parts import Attention
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Kept, Moment, Run

PAIRS, WIDE = Held("B K G T S"), Held("B K G T S", "full")
QUERIES = Held("B T N H")


def narrow_scores(
    at: str,
    met: Mapping[str, str],
    part: Attention,
    local: tuple[Held, ...],
    *,
    viewed: bool,
    drops: bool,
    apart: bool,
    alone: bool,
    stays: bool,
) -> Run:
    """Scores in 16 bits, softmax in fp32, cast before numbers of it are dropped.

    `met`: names of queries and keys. `local`: what the module holds. `apart`: products copy what does not lie head by
    head. `alone`: of one sequence. `viewed`: queries, keys
    and values are views of one product. `stays`: what softmax read is there until that is cast.
    """
    copied = not isinstance(part.group, int) or part.group > 1
    lone = copied and alone and part.kv_heads == 1
    made = copied and part.kv_heads != 1  # tensors of their own before they are multiplied
    scores, softmax, summed = (f"{at}.{name}" for name in ("scores", "softmax", "values"))
    cast, drop, heads = f"{softmax}.cast", f"{softmax}.drop", "K" if lone else "N"
    own = apart or (copied and not lone)
    by = (scores, summed) if viewed and not own else (summed,)
    kept = (
        Kept(f"{at}.q_copy" if apart else met["q"], "B T N H", by=(scores,)),
        Kept(f"{at}.k_copies" if own else met["k"], f"B S {heads} H", by=(scores,)),
        Kept(softmax, PAIRS.spec, by=(softmax,), role="full"),
        *((Kept(drop, PAIRS.spec, by=(drop,), role="flag"),) if drops else ()),
        Kept(cast, PAIRS.spec, by=(summed,)),
        Kept(f"{at}.v_copies" if own else f"{at}.v_proj", f"B S {heads} H", by=by),
        Kept(f"{at}.values", "B T N H", by=(f"{at}.o_proj.matmul",)),
    )
    copies, value = Held("B S N H"), Held("B S K H", path=f"{at}.v_proj")
    moments = (
        Moment(summed, (QUERIES, PAIRS, copies)),
        *((Moment(drop, (PAIRS, PAIRS, copies)),) if drops else ()),
        Moment(cast, (PAIRS, WIDE, copies)),
        Moment(softmax, (WIDE, WIDE, copies)),
        Moment(scores, (PAIRS, QUERIES, copies, copies)),
    )
    there = (WIDE,) if stays else ()
    early = (*local, value, *((copies,) if made else ()))
    ahead = (
        Moment(softmax, (WIDE, *early)),
        Moment(cast, (*there, PAIRS, *early)),
        *((Moment(drop, (PAIRS, *early)),) if drops else ()),
        Moment(summed, (QUERIES, QUERIES, *local, value)),
    )
    keys = (copies,) if made else ()
    again = (copies,) if own else ()
    bare = (
        Moment(scores, (PAIRS, *((QUERIES,) if apart else ()), *again, *keys, *local, value)),
        Moment(softmax, (WIDE, WIDE, *keys, *local, value)),
        Moment(cast, (WIDE, *there, PAIRS, *keys, *local, value)),
        *((Moment(drop, (PAIRS, PAIRS, Held(PAIRS.spec, "flag"), *keys, *local, value)),) if drops else ()),
        Moment(summed, (PAIRS, QUERIES, *again, *local, value)),
        Moment(summed, (PAIRS, QUERIES, QUERIES, *keys, *local, value)),
    )
    order = (scores, softmax, cast, *((drop,) if drops else ()), summed)
    return Run(order, kept, moments, ahead, (), bare)


def turned_scores(
    at: str,
    part: Attention,
    local: tuple[Held, ...],
    behind: tuple[Held, ...],
    *,
    drops: bool,
    apart: bool,
    batch: Size,
) -> Run:
    """Queries and keys that are turned in fp32 are cast for their scores; softmax in fp32, cast for the values.

    `local`: what the module holds, `behind` once values are summed. `apart`: products copy what does not lie head by
    head.
    """
    copied = not isinstance(part.group, int) or part.group > 1
    viewed = copied and batch == 1 and part.kv_heads == 1  # copies of one head for all are views, but for casts
    scores, softmax, summed = (f"{at}.{name}" for name in ("scores", "softmax", "values"))
    narrowed, cast, pairs = f"{at}.narrowed", f"{softmax}.cast", "B K G T S"
    cap = (f"{at}.softcap",) if part.softcap else ()
    kept = [
        Kept(f"{at}.q_rotary", "B T N H", by=(scores,)),
        Kept(f"{at}.k_copies" if copied else f"{at}.k_rotary", "B S N H", by=(scores,)),
        *(Kept(f"{at}.tanh", pairs, by=(name,)) for name in cap),
        Kept(softmax, pairs, by=(softmax,), role="full"),
        *((Kept(f"{softmax}.drop", pairs, by=(f"{softmax}.drop",), role="flag"),) if drops else ()),
        Kept(cast, pairs, by=(summed,)),
        Kept(f"{at}.v_copies" if copied else f"{at}.v_proj", f"B S {'K' if viewed else 'N'} H", by=(summed,)),
        Kept(f"{at}.values", "B T N H", by=(f"{at}.o_proj.matmul",)),
    ]
    wide, copies, queries = Held(pairs, "full"), Held("B S N H"), Held("B T N H")
    result = (queries._replace(times=1 + (part.heads != 1)),)  # and laid out token by token, which one head is already
    lone = part.kv_heads == 1  # whose copies are views, but for what is made of them
    value, keys = Held("B S K H"), (Held("B S N H", "full"),) if copied and not lone else ()
    early = (*local, *keys, value, *((copies,) if copied and not lone else ()))
    late = (*behind, *keys)
    moments = [
        Moment(summed, (queries, Held(pairs), copies)),
        Moment(cast, (wide, Held(pairs), copies)),
        *((Moment(f"{softmax}.drop", (wide, wide, copies)),) if drops else ()),
        Moment(softmax, (wide, wide, copies)),
        *(Moment(name, (Held(pairs, times=2), copies)) for name in cap),
        Moment(scores, (Held(pairs), queries, copies, copies)),
        Moment(narrowed, (queries._replace(role="full"), copies, copies, Held("B S N H", "full"))),
    ]
    dropped = (Moment(f"{softmax}.drop", (wide, *early)),) if drops else ()
    ahead = (
        Moment(softmax, (wide, *early)),
        *dropped,
        Moment(summed, (*((wide,) if drops else ()), *result, *late)),
    )
    narrow = (queries._replace(times=1 + apart), copies._replace(times=1 + (apart and not copied)), Held(pairs))
    again = (copies,) if apart and (lone or not copied) else ()  # values, for their product
    alone = (
        Moment(scores, (*narrow, *early)),
        Moment(softmax, (wide, wide, *early)),
        *((Moment(f"{softmax}.drop", (wide, wide, Held(pairs, "flag"), *early)),) if drops else ()),
        Moment(summed, (wide, Held(pairs), queries, *early, *again)),
        Moment(summed, (wide, *result, *early)),
    )
    order = (narrowed, scores, *cap, softmax, *((f"{softmax}.drop",) if drops else ()), cast, summed)
    return Run(order, tuple(kept), tuple(moments), ahead, (), alone)
