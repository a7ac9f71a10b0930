"""A loss of chunks under autocast: head and cross entropy of some tokens at a time, from the stream in fp32.

Each chunk is cast when it is run and again when it runs again; the head's weight too. Gradients of that weight are
added in 16 bits and cast once.
"""

from __future__ import annotations

from tfacct.ledger.kept import Held, Kept, Moment, Run

WEIGHT, CAST, MATMUL = "lm_head.weight", "lm_head.cast", "lm_head.matmul"
SPLIT, SOFTMAX, CHOOSE = "loss.split", "loss.softmax", "loss.choose"
TARGETS = ("loss.targets", "loss.padding")


def chunked_narrow(run: Run, *, several: bool) -> Run:
    """The end of a pass under autocast, its loss computed chunk by chunk. `several`: there is more than one chunk.

    A head's bias is cast beside its weight, and its gradient is added up as that is.
    """
    norm = tuple(name for name in run.order if name.startswith("final_norm"))
    kept = (
        *(line for line in run.kept if not line.path.startswith(("loss.", "lm_head."))),
        Kept("final_norm", "B T D", (CAST,), "full"),
        *(Kept(line.path, line.spec, (MATMUL,), line.role) for line in run.kept if line.path in TARGETS),
    )
    table, own, done = Held("V D"), Held("Tc D"), Held("Td D", "full")
    bias = (Held("V"),) if any(Held("V") in moment.held for moment in run.moments) else ()
    others = (table, done, *bias) if several else ()  # the weight's gradient and those of the chunks that are done
    added = (Moment(CAST, (table._replace(times=3), own, done, *bias, *bias)),) if several else ()
    moments = (
        *(moment for moment in run.moments if moment.at in norm),
        Moment(SPLIT, (Held("B T D", "full", 2),)),
        Moment(WEIGHT, (table, Held("V D", "full"), Held("B T D", "full")), done=False),
        Moment(CAST, (table, own, Held("B T D", "full"))),
        *added,
        Moment(MATMUL, (Held("Tc V"), own, own, table, table, *others)),
        Moment(SOFTMAX, (Held("Tc V", "full", 3), own, table, *others)),
    )
    forward = Moment(CHOOSE, (Held("Tc V", "full", 2), table, *bias, Held("", "full", 2 + several)))
    ahead = (*(moment for moment in run.ahead if moment.at in norm), forward)
    return Run((*norm, SPLIT, WEIGHT, CAST, MATMUL, SOFTMAX, CHOOSE), kept, moments, ahead)
