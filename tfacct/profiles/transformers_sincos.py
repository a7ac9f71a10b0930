"""How GPT-J trains: each block reads sines of its positions off a buffer of its own, and repeats them for neighbours.

Queries and keys are turned one after the other, each by sines and cosines of its own, and meet in fp32.
"""

from __future__ import annotations

from tfacct.ledger.kept import Held, Kept, Moment, Run
from tfacct.profiles.base import Habits
from tfacct.profiles.transformers_wide_scores import KEY, QUERY, SCORES, SHARES, VALUE

ROW = Held("B T D")

LOCAL = (
    Held("B T N H", times=2),
    Held("B T N Hr", times=2),
    Held("P Hr", "full"),
    Held("T Hr", "index"),
    Held("T Hr"),
)
"""What attention has until it is done: queries and keys before they are turned and what is turned of them, sines of all
positions, the index that reads those of a sequence, and these."""


def turned_apart(at: str) -> Run:
    """Queries and keys, which sines and cosines turn that nothing else reads."""
    names = (f"{at}.k_turned", f"{at}.q_turned")
    kept = (Kept(f"{name}.{which}", "T Hr", by=(name,)) for name in names for which in ("cos", "sin"))
    return Run(names, tuple(kept))


def with_sines(at: str, run: Run, habits: Habits, *, copied: bool) -> Run:
    """Attention beside whose forward pass all that it has stays. `copied`: its products copy queries, keys and values,
    which do not lie head by head."""
    softmax, summed, out = (f"{at}.{name}" for name in ("softmax", "values", "o_proj.weight"))
    turned = tuple(held._replace(role="work" if copied else "cast") for held in (QUERY, KEY))
    wide = tuple(held._replace(role="copy") for held in (QUERY, KEY))
    there = (*LOCAL, *turned, *(wide if copied else ()))
    value = (VALUE,) if copied else ()
    dropped = (ROW, ROW._replace(role="flag")) if habits.residual else ()
    drop = (
        [Moment(f"{softmax}.drop", (SHARES, SHARES._replace(role="cast"), *there, VALUE))] if habits.attention else []
    )
    ahead = (
        Moment(softmax, (SCORES, *there, VALUE)),
        *drop,
        Moment(summed, (QUERY, *there, *value)),
        Moment(summed, (QUERY, QUERY, *LOCAL, *turned, *value)),
        Moment(out, (ROW, *dropped, *LOCAL, *turned, *value)),
    )
    embedded = (ROW,) if habits.embedding else ()  # beside what is left of it, which block 0 keeps
    bare = (Moment(softmax, (SCORES, SCORES, SHARES, QUERY, KEY, *wide, VALUE, ROW, *LOCAL, *embedded)),)
    return run._replace(ahead=ahead, bare=bare)
