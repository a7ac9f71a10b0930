"""Eager attention's forward pass at its fullest: its own queries, keys and values stay beside copies of them."""

from __future__ import annotations

from tfacct.architecture.parts import Attention
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Moment
from tfacct.profiles.base import Habits

Tensors = tuple[Held, ...]


def ahead(at: str, pairs: str, habits: Habits, batch: Size, part: Attention, *, apart: bool) -> tuple[Moment, ...]:
    """Moments of the forward pass of scores, softmax and values. `apart`: what is kept of values is a copy."""
    copied = (not isinstance(part.group, int) or part.group > 1) and part.kv_heads != 1
    early, late = _plain(habits, batch, copied)
    if habits.rejoins:
        early, late = _rejoined(habits, part, copied, apart)
    elif habits.fused and part.rotary is not None:  # the product of all three stays, turned or not
        whole = (Held("B T N H"), Held("B T K H", times=2))
        turned = (Held("B T N H"), Held("B S K H")) if batch > 1 and part.heads != 1 else ()
        early, late = (*turned, *whole), (*turned, *(whole if apart else ()))
    elif part.heads == 1:  # which lies head by head as it is made
        early = late = ()
    wide = () if habits.narrow_softmax else (Held(pairs, "copy"),)
    dropped = (Held("B T D"), Held("B T D", "flag")) if habits.residual and habits.drops_inside else ()
    softmax, summed, out = f"{at}.softmax", f"{at}.values", f"{at}.o_proj.weight"
    if habits.starts_biased:  # values are copied first; scores stay, before and behind the mask
        values = (Held("B S K H"),) if batch > 1 else ()
        early, late = (*early, *values, Held(pairs)), (*late, Held(pairs, times=2))
    moments = [Moment(softmax, (Held(pairs), *wide, *early))]
    if habits.attention:
        again = (Held(pairs),) if habits.starts_biased else ()
        cast = () if habits.narrow_softmax else (Held(pairs, "cast"),)
        moments.append(Moment(f"{softmax}.drop", (Held(pairs), *cast, *again, *early)))
    return (
        *moments,
        Moment(summed, (Held("B T N H", times=2), *late)),
        Moment(out, (Held("B T D"), *late)),
        *((Moment(out, (Held("B T D"), *dropped, *late), after=True),) if dropped else ()),
    )


def _plain(habits: Habits, batch: Size, copied: bool) -> tuple[Tensors, Tensors]:
    """What stays before the values are summed, and from there on.

    Products copy what does not lie head by head, which is all but a batch of one; `copied`: keys and values are
    copied for each query head first, as several heads are: those of one head are seen from each.
    """
    keys = (Held("B S K H"),) if batch > 1 or copied else ()
    queries = (Held("B T N H"),) if batch > 1 else ()
    values = () if habits.fused and batch == 1 else (Held("B S K H"),)
    early = (*queries, *keys, *values, *((Held("B S N H"),) if copied else ()))
    return early, (*queries, *keys, *keys)


def _rejoined(habits: Habits, part: Attention, copied: bool, apart: bool) -> tuple[Tensors, Tensors]:
    """The same where queries and keys lie head by head as they are: only values are copied, and several keys' heads.

    The one product of all three stays as long as values do; of three products, those that halves are views of.
    """
    keys = (Held("B S K H"),) if part.group != 1 and apart else ()
    whole = (Held("B T N H"), Held("B S K H"))  # queries and keys before they are turned
    if habits.fused:
        made = (*whole, Held("B S K H"))
        return (*keys, *made, *((Held("B S N H"),) if copied else ())), (*keys, *(made if apart else ()))
    halves = () if habits.joins_inside else (*whole, Held("B T N Hr"), Held("B S K Hr"))
    values = (Held("B S K H"),)
    late = (*keys, *halves, *(values if apart else ()))
    return (*keys, *halves, *values, *((Held("B S N H"),) if copied else ())), late
