"""Experts that PhimoeTopKRouter picks by its sparse mixer: twice a mask, shares of what it leaves, and one of them."""

from __future__ import annotations

from tfacct.architecture.parts import Experts
from tfacct.ledger.kept import Held, Kept, Moment, Run
from tfacct.profiles.base import Habits
from tfacct.profiles.transformers_parts import experts

PICKS = 2
"""Experts that a token is sent to, one after the other."""


def mixed_experts(at: str, reads: str, part: Experts, habits: Habits) -> Run:
    """The run of experts, its router's lines those of the mixer, in the pass's dtype."""
    run = experts(at, reads, part, habits)
    routing = f"{at}.router.softmax"
    own = (
        Kept(f"{at}.unseen", "B T E", by=(routing,), role="flag", times=PICKS),
        Kept(f"{at}.gates", "B T E", by=(routing,), times=PICKS),
        Kept(f"{at}.chosen", "B T", by=(routing,), role="index", times=PICKS),
        Kept(f"{at}.multipliers", "B T", by=(routing,), times=PICKS),
    )
    kept = (*(line for line in run.kept if line.by != (routing,)), *own)
    moments = (
        *(moment for moment in run.moments if moment.at != routing and not moment.after),
        Moment(routing, (Held("B T D"), Held("B T E", times=4), Held("B T A"))),
    )
    return run._replace(kept=kept, moments=moments)
