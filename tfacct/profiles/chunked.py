"""A loss of chunks: head and cross entropy of some tokens at a time, run again in the backward pass.

As torch.utils.checkpoint, not reentrant, runs them for each of `CHUNKS` chunks of the tokens (torch.chunk).
"""

from __future__ import annotations

from tfacct.ledger.einsum import Size, rounded_up
from tfacct.ledger.kept import Held, Kept, Moment, Pass, Run

CHUNKS = 8
"""Chunks that the tokens of all sequences are cut into, as torchtune's CEWithChunkedOutputLoss does by default."""
HEAD, SPLIT, SOFTMAX = "lm_head.weight", "loss.split", "loss.softmax"
TARGETS = ("loss.targets", "loss.padding")


def chunk_letters(batch: Size, tokens: Size) -> dict[str, Size]:
    """Tokens of the first chunk, which is run last, and of the others."""
    first = rounded_up(batch * tokens, CHUNKS)
    return {"Tc": first, "Td": batch * tokens - first}


def loss_in_chunks(whole: Pass, batch: Size, tokens: Size) -> Pass:
    """The pass, its loss computed chunk by chunk."""
    letters = chunk_letters(batch, tokens)
    back = whole.back._replace(run=_chunked(whole.back.run, several=batch * tokens > 1, many=batch * tokens > 2))
    return whole._replace(back=back._replace(axes={**back.axes, **letters}))


def _chunked(run: Run, *, several: bool, many: bool) -> Run:
    norm = tuple(name for name in run.order if name.startswith("final_norm"))
    targets = tuple(Kept(line.path, line.spec, (HEAD,), line.role) for line in run.kept if line.path in TARGETS)
    kept = tuple(line for line in run.kept if not line.path.startswith("loss."))
    others = (Held("V D"), Held("Td D")) if several else ()  # gradients of the chunks that are done
    added = Held("V D", times=2)  # the weight's gradients of a chunk and of those before it, and their sum
    last = (Moment(SPLIT, (added, Held("B T D"))),) if several else ()
    second = (Moment(HEAD, (added, Held("Td D"), Held("", "short"))),) if many else ()
    moments = (
        *(moment for moment in run.moments if moment.at in norm),
        Moment(SPLIT, (Held("B T D", times=2),)),
        *last,
        Moment(HEAD, (Held("Tc V"), Held("Tc D"), *others)),
        *second,
        Moment(SOFTMAX, (Held("Tc V", "full", 3), *others)),
    )
    return Run((*norm, SPLIT, HEAD, SOFTMAX), (*kept, *targets), moments, run.ahead)
