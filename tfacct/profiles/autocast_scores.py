"""Eager attention under autocast where queries and keys meet in 16 bits: not turned, or cast back behind that."""

from __future__ import annotations

from collections.abc import Mapping

from tfacct.architecture.parts import Attention
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
