"""A loss of chunks: head and cross entropy of some tokens at a time, run again in the backward pass.

As torch.utils.checkpoint, not reentrant, runs them for each of `CHUNKS` chunks of the tokens (torch.chunk).
"""

from __future__ import annotations

from tfacct.ledger.einsum import Size, rounded_up
from tfacct.ledger.kept import Held, Kept, Moment, Pass, Run
from tfacct.profiles.chunked_autocast import MATMUL, SOFTMAX, SPLIT, TARGETS, chunked_narrow

CHUNKS = 8
"""Chunks that the tokens of all sequences are cut into, as torchtune's CEWithChunkedOutputLoss does by default."""
HEAD = "lm_head.weight"
LOGITS = "loss.logits"
"""The logits of a chunk, which are made again: what they are made of is kept, whether the head is trained or not."""


def chunk_letters(batch: Size, tokens: Size) -> dict[str, Size]:
    """Tokens of the first chunk, which is run last, and of the others."""
    first = rounded_up(batch * tokens, CHUNKS)
    return {"Tc": first, "Td": batch * tokens - first}


def loss_in_chunks(whole: Pass, batch: Size, tokens: Size, *, frozen: bool = False, biased: bool = False) -> Pass:
    """The pass, its loss computed chunk by chunk. `frozen`: the head is not trained; `biased`: it has a bias."""
    letters, several = chunk_letters(batch, tokens), batch * tokens > 1
    if MATMUL in whole.back.run.order:
        run = chunked_narrow(whole.back.run, several=several, frozen=frozen, biased=biased)
    else:
        run = _chunked(whole.back.run, several=several, many=batch * tokens > 2, frozen=frozen)
    back = whole.back._replace(run=run)
    return whole._replace(back=back._replace(axes={**back.axes, **letters}))


def _chunked(run: Run, *, several: bool, many: bool, frozen: bool) -> Run:
    norm = tuple(name for name in run.order if name.startswith("final_norm"))
    targets = tuple(Kept(line.path, line.spec, (LOGITS,), line.role) for line in run.kept if line.path in TARGETS)
    kept = tuple(_read(line) for line in run.kept if not line.path.startswith("loss."))
    weight = () if frozen else (Held("V D"),)
    others = (*weight, Held("Td D")) if several else ()  # gradients of the chunks that are done
    added = Held("V D", times=2)  # the weight's gradients of a chunk and of those before it, and their sum
    last = (Moment(SPLIT, (added, Held("B T D"))),) if several and not frozen else ()
    second = (Moment(HEAD, (added, Held("Td D"), Held("", "short"))),) if many and not frozen else ()
    moments = (
        *(moment for moment in run.moments if moment.at in norm),
        Moment(SPLIT, (Held("B T D", times=2),)),
        *last,
        Moment(HEAD, (Held("Tc V"), Held("Tc D"), *others)),
        *second,
        Moment(SOFTMAX, (Held("Tc V", "full", 3), *others)),
    )
    return Run((*norm, SPLIT, LOGITS, HEAD, SOFTMAX), (*kept, *targets), moments, run.ahead)


def _read(line: Kept) -> Kept:
    """A line that is kept anyway; what the head reads is needed to make the logits again."""
    return Kept(line.path, line.spec, (*line.by, LOGITS), line.role, line.times) if HEAD in line.by else line
