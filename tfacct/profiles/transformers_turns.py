"""What becomes of queries, keys and values of the transformers classes before they meet: bounds, and a turn in fp32."""

from __future__ import annotations

from tfacct.ledger.kept import Held, Kept, Moment, Run

MADE = (Held("B T N H"), Held("B T K H"), Held("B T K H"))
"""Queries, keys and values, or their gradients."""
QUERY, KEY = Held("B T N H", "full"), Held("B T K H", "full")
COPIES = (Held("B T N H", "copy"), Held("B T K H", "copy"))


def clipped(at: str) -> Run:
    """Queries, keys and values bounded in place: what they were is kept."""
    names = {"q": "N", "k": "K", "v": "K"}
    order = tuple(f"{at}.{which}_clip" for which in names)
    kept = tuple(
        Kept(f"{at}.{which}_unbounded", f"B T {heads} H", by=(name,))
        for (which, heads), name in zip(names.items(), order, strict=True)
    )
    moments = tuple(
        Moment(name, (*MADE, Held(f"B T {heads} H"), Held(f"B T {heads} H", "flag", 2)))
        for heads, name in zip(names.values(), order, strict=True)
    )
    return Run(order, kept, moments)


def turned_wide(turn: str) -> Run:
    """A turn of neighbours in fp32: each product, and the halves that are put together for the second."""
    ahead = (
        Moment(turn, (*MADE, *COPIES, QUERY._replace(times=3))),
        Moment(turn, (*MADE, *COPIES, QUERY, KEY._replace(times=3))),
    )
    moments = (
        Moment(turn, (MADE[2], QUERY, KEY._replace(times=4))),
        Moment(turn, (MADE[2], KEY, QUERY._replace(times=4)), after=True),
    )
    return Run((turn,), (), moments, ahead)


def turned_by_wide(turn: str) -> Run:
    """A turn by angles in fp32: products with them are, and each gradient is cast back."""
    query, key = ((Held(axes, "full", 2), Held(axes), Held(axes, "cast")) for axes in ("B T N H", "B T K H"))
    ahead = (Moment(turn, (*MADE, QUERY._replace(times=3))), Moment(turn, (*MADE, QUERY, KEY._replace(times=3))))
    moments = (Moment(turn, (MADE[2], QUERY, *key)), Moment(turn, (MADE[2], MADE[1], *query), after=True))
    return Run((turn,), (), moments, ahead)


def turned_copies(turn: str) -> Run:
    """A turn of copies in fp32, whose halves change places: the gradient of each is cast back."""
    negated = Held("B T K H", "cast")  # half of a copy
    ahead = (Moment(turn, (*MADE, QUERY, KEY._replace(times=3), negated)),)
    moments = (
        Moment(turn, (MADE[2], QUERY, KEY._replace(times=4))),
        Moment(turn, (*MADE[1:], QUERY._replace(times=4)), after=True),
    )
    return Run((turn,), (), moments, ahead)


def turned_neighbours_wide(at: str, axes: str) -> Run:
    """A turn of neighbours in fp32, whole heads of it: its result is cast back, and so is the gradient of each half.

    Backwards the sines are read first, and go with it.
    """
    cosine, sine = (f"{at}.turned_by_{which}" for which in ("cos", "sin"))
    kept = tuple(Kept(f"{at}.{which}", axes, by=(f"{at}.turned_by_{which}",), role="full") for which in ("cos", "sin"))
    ahead = (Moment(sine, (*MADE, QUERY._replace(times=3))), Moment(sine, (*MADE, QUERY, KEY._replace(times=3))))
    moments = (
        Moment(sine, (MADE[2], QUERY, KEY, MADE[1]._replace(times=3))),
        Moment(cosine, (*MADE[1:], QUERY, MADE[0]._replace(times=3))),
    )
    return Run((cosine, sine), kept, moments, ahead)


def turned_halves(turn: str, turned: str) -> Run:
    """A turn of the two halves of a head, or of a part of it: backwards, each half's gradient is as wide as both.

    What is not turned of keys waits as a view of the gradient that came from their products.
    """
    done = Held(f"B T K {turned}")
    query, key = ((Held(f"B T {heads} H"), Held(f"B T {heads} {turned}", times=3)) for heads in "NK")
    moments = (Moment(turn, (MADE[2], MADE[0], *key)), Moment(turn, (MADE[2], MADE[1], done, *query), after=True))
    return Run((turn,), (), moments)


def tempered(at: str) -> Run:
    """Queries times a number of their position."""
    scale = f"{at}.q_scale"
    return Run((scale,), (Kept(f"{at}.temperature", "T", by=(scale,)),))
