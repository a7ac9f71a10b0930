"""How MPT trains: attention to whose scores biases by distance in fp32 are added, and whose mask replaces scores.

Biases of all positions are made once, and so is the mask, which every block keeps.
"""

from __future__ import annotations

from tfacct.ledger.kept import ROTARY, Held, Kept, Moment, Run

DISTANCES = Held("N P", "full")
"""Biases of all positions that the class knows."""
SHARED = ROTARY
"""The operation of every block that needs the mask, which goes as angles do."""
MASK = Kept("mask", "B T S", by=(SHARED,), role="flag")


def distanced(at: str, inner: Run) -> Run:
    """Attention whose scores are in fp32 once biases are added, and stay until it is done."""
    pairs = Held("B K G T S", "full")
    softmax = f"{at}.softmax"
    place = inner.order.index(softmax)
    ahead = tuple(m if m.at == softmax else m._replace(held=(*m.held, pairs)) for m in inner.ahead)
    made = next(m for m in inner.ahead if m.at == softmax)
    early = tuple(held for held in made.held if held.spec != pairs.spec)
    return inner._replace(
        order=(*inner.order[:place], SHARED, *inner.order[place:]),
        moments=(*inner.moments, Moment(SHARED, (pairs, pairs))),
        ahead=(*ahead, Moment(softmax, (pairs, *early))),
    )


def bounded(at: str) -> Run:
    """Queries, keys and values bounded together: what they were is kept."""
    name = f"{at}.clip"
    whole = Held("B T N H", times=3)
    flags = Held("B T N H", "flag", 3 * 2)
    return Run(
        (name,), (Kept(f"{at}.unbounded", "B T N H", by=(name,), times=3),), (Moment(name, (whole, whole, flags)),)
    )
