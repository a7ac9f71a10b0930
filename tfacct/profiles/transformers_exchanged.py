"""Experts of other ranks: tokens go to them and the results come back, as transformers' AllToAllEP runs it.

A rank sends a row for each of its tokens and its experts, runs its own experts on the rows that it receives, and
weights what comes back. Rows that it receives are in no order of its own, so they are put in that of their experts.
"""

from __future__ import annotations

from tfacct.accounts.sharding.experts import RECEIVED, SLICE
from tfacct.accounts.sharding.shards import HERE
from tfacct.ledger import paths
from tfacct.ledger.kept import Held, Kept, Moment, Role, Run

INPUT = paths.in_every(paths.BLOCKS, "in")


def exchanged(at: str, reads: str, run: Run, width: Role) -> Run:
    """The run of experts that read `reads`, `width` the role of the weights by which a token's are summed; what routes
    is as it was."""
    own = f"{at}.experts"
    gate, up, down = (f"{own}.{which}_proj.weight" for which in ("gate", "up", "down"))
    sent, ordered, act, product = (f"{own}.{name}" for name in ("sent", "order", "act", "product"))
    ones, back, returned, share = (f"{own}.{name}" for name in ("ones", "back", "returned", "share"))
    before = run.order[: run.order.index(sent)]
    pairs, rows, wide = f"{SLICE} A", RECEIVED, f"{RECEIVED} Fe"
    stream, out = f"{pairs} D", f"{rows} D"
    shares = Held(pairs, width)  # the gradient of what a token's experts are weighted by
    # In fp32 the gradient of the sum is a copy, and that of what came back is cast last.
    summed = (Held(f"{SLICE} D", "full"), Held(stream)) if width == "full" else ()
    # While a rank weights what came back, what it received and what it made of that are there still.
    received = Held(out, times=2), Held(rows, "index"), Held(rows)
    there = Held(stream), *received, Held("B T E"), Held("B T D", path=INPUT), Held("B T D", path=reads)
    routed = [moment for moment in run.moments if moment.at in before]
    return Run(
        (*before, sent, ordered, gate, up, act, product, down, ones, back, returned, share),
        (
            *(line for line in run.kept if not set(line.by).isdisjoint(before)),
            Kept(f"{own}.tokens", pairs, by=(sent,), role="index"),
            Kept(ordered, rows, by=(ordered,), role="index"),
            Kept(f"{own}.absent", rows, by=(ordered, gate, down), role="flag"),
            Kept(f"{own}.ends", HERE, by=(gate, up, down), role="short"),
            Kept(sent, out, by=(gate, up)),
            Kept(f"{own}.gate_and_up", wide, by=(act, product), times=2),
            Kept(f"{own}.act.result", wide, by=(product,)),
            Kept(product, wide, by=(down,)),
            Kept(ones, rows, by=(ones,)),
            Kept(back, rows, by=(back,), role="index"),
            Kept(returned, pairs, by=(returned,), role="index"),
            Kept(f"{own}.down_proj", stream, by=(share,)),
            Kept(share, pairs, by=(share,), role=width),
        ),
        (
            Moment(share, (Held(stream, width, 2), *summed)),
            Moment(returned, (Held(stream, times=2), shares)),
            Moment(back, (Held(stream), Held(out), shares)),
            Moment(back, (Held(out, times=2), shares)),
            Moment(ones, (Held(out, times=2), shares)),
            Moment(down, (Held(out), Held(wide), shares)),
            Moment(product, (Held(wide, times=3), shares)),
            Moment(gate, (Held(wide, times=4), shares), done=False),
            Moment(gate, (Held(wide, times=2), Held(out), shares)),
            Moment(ordered, (Held(out, times=2), shares)),
            Moment(sent, (Held(out), Held(stream), shares)),
            Moment(sent, (Held(stream), Held(f"{SLICE} D", times=2), shares)),
            *routed,
        ),
        (Moment(share, (Held(stream, width), Held(f"{SLICE} D", width), *there), after=True),),
        run.early,
    )
