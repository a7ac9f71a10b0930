"""A loss of chunks under autocast: head and cross entropy of some tokens at a time, from the stream in fp32.

Each chunk is cast when it is run and again when it runs again; the head's weight too. Gradients of that weight are
added in 16 bits and cast once.
"""

from __future__ import annotations

from tfacct.ledger.kept import Held, Kept, Moment, Run

WEIGHT, CAST, MATMUL = "lm_head.weight", "lm_head.cast", "lm_head.matmul"
SPLIT, SOFTMAX, CHOOSE = "loss.split", "loss.softmax", "loss.choose"
TARGETS = ("loss.targets", "loss.padding")


def chunked_narrow(run: Run, *, several: bool, frozen: bool = False, biased: bool = False) -> Run:
    """The end of a pass under autocast, its loss computed chunk by chunk. `several`: there is more than one chunk.

    A head's bias is cast beside its weight, and its gradient is added up as that is. `frozen`: the head is not trained,
    so its weight is cast anew whenever a chunk runs, and its bias, if it has one (`biased`).
    """
    norm = tuple(name for name in run.order if name.startswith("final_norm"))
    kept = (
        *(line for line in run.kept if not line.path.startswith(("loss.", "lm_head."))),
        Kept("final_norm", "B T D", (CAST,), "full"),
        *(Kept(line.path, line.spec, (MATMUL,), line.role) for line in run.kept if line.path in TARGETS),
    )
    table, own, done = Held("V D"), Held("Tc D"), Held("Td D", "full")
    order = (*norm, SPLIT, WEIGHT, CAST, MATMUL, SOFTMAX, CHOOSE)
    at_norm, beside = (tuple(m for m in every if m.at in norm) for every in (run.moments, run.ahead))
    if frozen:
        behind = (done,) if several else ()
        moments = (
            *at_norm,
            Moment(SPLIT, (Held("B T D", "full", 2),)),
            Moment(MATMUL, (Held("Tc V"), own, table, *behind)),
            Moment(SOFTMAX, (Held("Tc V", "full", 3), table, *behind)),
        )
        made = Moment(CHOOSE, (Held("Tc V"), own, table, Held("V", times=int(biased)), Held("", "full", int(several))))
        chosen = Moment(CHOOSE, (Held("Tc V", "full", 2), Held("", "full", 2 + several)))
        alone = (m for m in beside if not any("V" in one.spec.split() for one in m.held))  # not the head's own cast
        return Run(order, kept, moments, (*alone, made, chosen))
    bias = (Held("V"),) if any(Held("V") in moment.held for moment in run.moments) else ()
    others = (table, done, *bias) if several else ()  # the weight's gradient and those of the chunks that are done
    added = (Moment(CAST, (table._replace(times=3), own, done, *bias, *bias)),) if several else ()
    moments = (
        *at_norm,
        Moment(SPLIT, (Held("B T D", "full", 2),)),
        Moment(WEIGHT, (table, Held("V D", "full"), Held("B T D", "full")), done=False),
        Moment(CAST, (table, own, Held("B T D", "full"))),
        *added,
        Moment(MATMUL, (Held("Tc V"), own, own, table, table, *others)),
        Moment(SOFTMAX, (Held("Tc V", "full", 3), own, table, *others)),
    )
    forward = Moment(CHOOSE, (Held("Tc V", "full", 2), table, *bias, Held("", "full", 2 + several)))
    return Run(order, kept, moments, (*beside, forward))
