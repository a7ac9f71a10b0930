"""How GPT-J and CodeGen train: each block reads sines off a buffer of its own, and repeats them for neighbours.

Queries and keys are turned one after the other, each by sines and cosines of its own, and meet in fp32.
"""

from __future__ import annotations

from tfacct.ledger.kept import Held, Kept, Moment, Role, Run
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


FOUR = 4
"""Parts of the one product's heads: of as many heads each is one, and nothing is copied."""
WIDE = (Held("B T N H", times=5), Held("B T N Hr", "full", 2), Held("T Hr", "full"))
"""The same where sines are in fp32: the one product, queries and keys copied from it, and what is turned of them."""


def turned_apart(at: str, *, wide: bool) -> Run:
    """Queries and keys, which sines and cosines turn that nothing else reads. `wide`: in fp32."""
    names = (f"{at}.k_turned", f"{at}.q_turned")
    role: Role = "full" if wide else "work"
    kept = (Kept(f"{name}.{which}", "T Hr", by=(name,), role=role) for name in names for which in ("cos", "sin"))
    return Run(names, tuple(kept))


def with_sines(at: str, run: Run, habits: Habits, *, copied: bool) -> Run:
    """Attention beside whose forward pass all that it has stays. `copied`: its products copy queries, keys and values,
    which do not lie head by head."""
    softmax, summed, out = (f"{at}.{name}" for name in ("softmax", "values", "o_proj.weight"))
    local = WIDE if habits.fused else LOCAL
    late: Role = "full" if habits.fused else "work"
    both = tuple(held._replace(role=late) for held in (QUERY, KEY))
    narrow = () if habits.fused else tuple(held._replace(role="cast") for held in (QUERY, KEY))
    turned = both if copied else narrow
    wide = () if habits.fused else tuple(held._replace(role="copy") for held in (QUERY, KEY))
    there = (*local, *turned, *(wide if copied else ()))
    value = (VALUE,) if copied else ()
    dropped = (ROW, ROW._replace(role="flag")) if habits.residual else ()
    drop = (
        [Moment(f"{softmax}.drop", (SHARES, SHARES._replace(role="cast"), *there, VALUE))] if habits.attention else []
    )
    ahead = (
        Moment(softmax, (SCORES, *there, VALUE)),
        *drop,
        Moment(summed, (QUERY, *there, *value)),
        Moment(summed, (QUERY, QUERY, *local, *turned, *value)),
        Moment(out, (ROW, *dropped, *local, *turned, *value)),
    )
    embedded = (ROW,) if habits.embedding else ()  # beside what is left of it, which block 0 keeps
    bare = (Moment(softmax, (SCORES, SCORES, SHARES, *both, *wide, VALUE, ROW, *local, *embedded)),)
    return run._replace(ahead=ahead, bare=bare)
