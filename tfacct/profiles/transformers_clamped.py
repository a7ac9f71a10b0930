"""Experts with biases and bounded activations, as transformers' grouped products run those of GptOssExperts."""

from __future__ import annotations

from tfacct.architecture.parts import Experts
from tfacct.ledger import paths
from tfacct.ledger.kept import Held, Kept, Moment, Run

INPUT = paths.in_every(paths.BLOCKS, "in")


def clamped_experts(at: str, reads: str, part: Experts) -> Run:
    """Experts whose gate and up are bounded, x · σ(αx) of the gate times up plus 1; shares in the pass's dtype."""
    router, own = f"{at}.router.weight", f"{at}.experts"
    numbers = f"{own}.numbers"
    routing, sent, ordered = f"{at}.router.softmax", f"{own}.sent", f"{own}.order"
    gate, up, down = (f"{own}.{which}_proj.weight" for which in ("gate", "up", "down"))
    gate_bias, up_bias, down_bias = (f"{own}.{which}_proj.bias" for which in ("gate", "up", "down"))
    inside = ("grouped", "split", "act", "product", "share", "back")
    grouped, split, act, product, share, back = (f"{own}.{which}" for which in inside)
    # The function's own, where frozen banks and biases need them not.
    there = (Held("B T A D", path=sent), Held("B T A", "index", path=numbers))
    routed = (Held("B T E"), Held("B T A", "short"), Held("E", "short"), *there)
    each = () if part.active == 1 else (Held("B T A D"),)  # the gradient of each expert's result: of one it is a view
    return Run(
        (
            *(router, routing, sent, ordered, gate_bias, up_bias, grouped, gate, up, split, act, product),
            *(down_bias, down, share, back),
        ),
        (
            Kept(reads, "B T D", by=(router,)),
            Kept(f"{at}.chosen", "B T A", by=(routing,), role="index"),
            Kept(f"{at}.shares", "B T A", by=(routing,)),
            Kept(f"{own}.tokens", "B T A", by=(sent,), role="index"),
            Kept(f"{own}.order", "B T A", by=(ordered,), role="index"),
            Kept(numbers, "B T A", by=(gate_bias, down_bias), role="index"),
            Kept(f"{own}.ends", "E", by=(grouped, gate, up, down), role="short"),  # whether banks are trained or not
            Kept(sent, "B T A D", by=(gate, up)),
            Kept(f"{own}.gate_and_up", "B T A Fe", by=(split,), times=2),
            Kept(f"{own}.act.gate", "B T A Fe", by=(act,)),
            Kept(f"{own}.act.sigmoid", "B T A Fe", by=(act,)),
            Kept(f"{own}.act.up", "B T A Fe", by=(product,)),
            Kept(f"{own}.act.result", "B T A Fe", by=(product,)),
            Kept(f"{own}.product", "B T A Fe", by=(down,)),
            Kept(f"{own}.share", "B T A", by=(share,)),
            Kept(f"{own}.down_proj", "B T A D", by=(share,)),
            Kept(back, "B T A", by=(back,), role="index"),
        ),
        (
            Moment(back, (Held("B T A D", times=2), *each)),
            Moment(share, (Held("B T A D", times=3),)),
            Moment(down, (Held("B T A D"), Held("B T A Fe"), Held("B T A"))),
            Moment(down_bias, (Held("B T A D"), Held("B T A Fe"), Held("B T A"), Held("E D"))),
            Moment(product, (Held("B T A Fe", times=3), Held("B T A"))),
            Moment(act, (Held("B T A Fe", times=4), Held("B T A"))),
            Moment(split, (Held("B T A Fe", times=7), Held("B T A"))),
            Moment(gate, (Held("B T A Fe", times=2), Held("B T A D"), Held("B T A"))),
            Moment(gate_bias, (Held("B T A Fe", times=2), Held("B T A D"), Held("B T A"), Held("E Fe", times=2))),
            Moment(sent, (Held("B T A D"), Held("B T D", times=2), Held("B T A"))),
            Moment(routing, (Held("B T D"), Held("B T E", times=2), Held("B T A"))),
            Moment(router, (Held("B T D", times=2), Held("B T E"))),
        ),
        (
            # The biases of each token's experts are there beside what they were added to, as is up, bounded.
            Moment(product, (Held("B T A Fe", times=4), Held("B T D", path=INPUT), Held("B T A"), *routed)),
            # A block that runs again stops in front of the last: its index is there, and numbers that it was made of.
            Moment(back, (Held("B T A D", times=2), Held("B T A", "index"), Held("B T D", path=INPUT), *routed)),
            Moment(back, (Held("B T A D", times=3), Held("B T D", path=INPUT), *routed), after=True),
        ),
        each,
    )
