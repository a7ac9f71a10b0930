"""Experts scored by a sigmoid in fp32 beside a network of all tokens, as DeepseekV3MoE runs them."""

from __future__ import annotations

from dataclasses import replace

from tfacct.architecture.parts import Experts, FeedForward
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.base import Habits
from tfacct.profiles.transformers_parts import beside, experts, network
from tfacct.profiles.transformers_shared import lettered


def scored_experts(at: str, reads: str, part: Experts, habits: Habits, *, full: bool) -> Run:
    """The experts run first, then the shared network, whose gradient of what both read waits for theirs. `full`: the
    pass is in fp32, in which the router reads what they do."""
    if part.shared_gate or part.shared_bias:
        raise ConfigError("transformers: no rule for a shared network with a gate or biases beside scored experts")
    own = experts(at, reads, replace(part, shared=None), habits)
    if part.shared is None:
        return _scored(at, own, habits, reads, full=full)
    # What both read has one gradient in front of the router: the two are added there.
    routed = _scored(at, beside(own, Held("B T D")), habits, reads, full=full)
    shape = FeedForward(hidden=part.hidden, width=part.shared, gated=True, activation=part.activation)
    shared = lettered(network(f"{at}.shared", reads, shape))
    return joined(routed, _summed_wide(shared) if habits.wide_sum else shared)


def _summed_wide(run: Run) -> Run:
    """The run of a network whose result is cast to fp32 and added to the experts': the gradient of that sum is in fp32,
    and waits for the experts, of which this network reads a copy in the pass's dtype."""
    first, *others = beside(run, Held("B T D", "copy")).moments
    first = first._replace(held=(*first.held, Held("B T D", "cast")))
    return run._replace(moments=(first, *others), early=(Held("B T D", "copy"), Held("B T D", "cast")))


def _scored(at: str, run: Run, habits: Habits, reads: str, *, full: bool) -> Run:
    """The run of experts, its router's lines those of scores in fp32, which copies what it `reads` in narrow passes."""
    router, routing, scores = f"{at}.router.weight", f"{at}.router.softmax", f"{at}.router.scores"
    shares = (
        Kept(f"{at}.sum", "B T", by=(routing,), role="full"),
        Kept(f"{at}.shares", "B T A", by=(routing,), role="full"),
    )
    scoring: tuple[Kept, ...] = (
        Kept(reads if full else f"{at}.router.upcast", "B T D", by=(router,), role="upcast"),
        Kept(f"{at}.router.copy", "D E", by=(scores,), role="copy"),
    )
    if habits.narrow_router:
        scoring = tuple(line for line in run.kept if line.by == (router,))
    own = (
        *scoring,
        Kept(f"{at}.routing", "B T E", by=(routing,), role="full"),
        Kept(f"{at}.chosen", "B T A", by=(routing,), role="index"),
        *(shares if habits.shared_out else ()),
    )
    kept = (*own, *(line for line in run.kept if {router, routing}.isdisjoint(line.by)))
    order = run.order if habits.narrow_router else (scores, *run.order)  # the copy of the weight, frozen or not
    held: tuple[Held, ...] = (Held("B T D"), Held("B T D", "full"), Held("B T E", "full"), Held("D E", "copy"))
    if habits.narrow_router:
        held = (Held("B T D", times=2), Held("B T E"))
    moments = (
        *(moment for moment in run.moments if moment.at not in (router, routing)),
        Moment(routing, (Held("B T D"), Held("B T E", "full", 4), Held("B T A", "full"))),
        Moment(router, held),
    )
    ahead = run.ahead
    if not habits.narrow_router:  # whose logits are in fp32, beside what it read, which is the layer's to its end
        wide, read = Held("B T E", "full"), Held("B T D", path=reads)
        ahead = tuple(m._replace(held=(*(wide if h == Held("B T E") else h for h in m.held), read)) for m in ahead)
    return run._replace(order=order, kept=kept, moments=moments, ahead=ahead)


def corrections(shape: Transformer, habits: Habits) -> tuple[Kept, ...]:
    """The number for each expert that corrects its score, a buffer of every block that has experts."""
    blocks = sum(
        stack.count for stack in shape.stacks if any(isinstance(part, Experts) for _, part in stack.block.parts())
    )
    role: Role = "full" if habits.wide_corrections or habits.corrected else "work"
    corrects = habits.scored or habits.corrected
    return (Kept("corrections", "E", by=(), role=role, times=blocks),) if corrects and blocks else ()
