"""Eager attention whose queries and keys are cast to fp32 for their product, as GPTNeoSelfAttention writes it out."""

from __future__ import annotations

from tfacct.architecture.parts import Attention
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Kept, Moment, Run
from tfacct.profiles.base import Habits

PAIRS = "B K G T S"
QUERY, KEY, VALUE = Held("B T N H"), Held("B S K H"), Held("B S K H")
SCORES, SHARES = Held(PAIRS, "full"), Held(PAIRS)
LEAST = Held("", "full")
"""The number that stands for no score."""


def wide_scores(at: str, part: Attention, habits: Habits, batch: Size, *, full: bool) -> Run:
    """Scores in fp32, those of tokens that are not seen replaced, softmax, its cast, and values."""
    scores, softmax, summed, out = (f"{at}.{name}" for name in ("scores", "softmax", "values", "o_proj.weight"))
    copied = batch > 1 and part.heads != 1  # products copy what does not lie head by head
    drops = habits.attention
    given = softmax if full or drops else f"{softmax}.cast"
    kept = [
        Kept(f"{at}.q_wide", "B T N H", by=(scores,), role="full"),
        Kept(f"{at}.k_wide", "B S K H", by=(scores,), role="full"),
        Kept(softmax, PAIRS, by=(softmax, *((summed,) if given == softmax and not drops else ())), role="full"),
    ]
    if drops:
        kept.append(Kept(f"{softmax}.drop", PAIRS, by=(f"{softmax}.drop",), role="flag"))
        kept.append(Kept(f"{softmax}.dropped", PAIRS, by=(summed,)))
    elif given != softmax:
        kept.append(Kept(given, PAIRS, by=(summed,), role="cast"))
    kept += [Kept(f"{at}.v_proj", "B S K H", by=(summed,)), Kept(summed, "B T N H", by=(out,))]
    moments = [
        Moment(summed, (QUERY, SHARES, VALUE)),
        Moment(softmax, (SCORES, SCORES, VALUE)),
        Moment(scores, (SCORES, QUERY._replace(role="full"), KEY._replace(role="full"), VALUE)),
    ]
    if drops:
        moments.append(Moment(f"{softmax}.drop", (SHARES, SHARES, VALUE)))
    order = (scores, softmax, *((f"{softmax}.drop",) if drops else ()), summed)
    ahead, bare = _forwards(at, habits, copied=copied)
    return Run(order, tuple(kept), tuple(moments), ahead, bare=bare)


def _forwards(at: str, habits: Habits, *, copied: bool) -> tuple[tuple[Moment, ...], tuple[Moment, ...]]:
    """Moments of the forward pass, and of one that keeps nothing."""
    softmax, summed, out = f"{at}.softmax", f"{at}.values", f"{at}.o_proj.weight"
    narrow = (QUERY._replace(role="cast"), KEY._replace(role="cast"))
    wide = (QUERY._replace(role="full"), KEY._replace(role="full"))
    there = (*narrow, *(wide if copied else ()), LEAST)
    own = (QUERY, KEY) if copied else narrow  # behind its function, which had copies of these, or in fp32 themselves
    value = (VALUE,) if copied else ()
    dropped = (Held("B T D"), Held("B T D", "flag")) if habits.residual else ()
    drop = [Moment(f"{softmax}.drop", (SHARES, Held(PAIRS, "cast"), *there, VALUE))] if habits.attention else []
    ahead = (
        Moment(softmax, (SCORES, *there, VALUE)),
        *drop,
        Moment(summed, (QUERY, *there, *value)),
        Moment(summed, (QUERY._replace(times=2), *own, *value)),
        Moment(out, (Held("B T D"), *dropped, *own, *value)),
    )
    bare = (Moment(softmax, (SCORES, SCORES, SHARES, *narrow, *wide, VALUE, LEAST, Held("B T D"))),)
    return ahead, bare
