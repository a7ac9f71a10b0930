"""The loss in chunks of the tokens: head and cross-entropy of one chunk at a time, which both run again backwards.

As torch.utils.checkpoint, not reentrant, runs them for each of `CHUNKS` chunks (torch.chunk). What the head reads
stays, and the gradient of its weight, to which each chunk adds.
"""

from __future__ import annotations

from tfacct.ledger.einsum import Size, rounded_up
from tfacct.training.graph import BackwardOp, LayerGraph, SavedTensor, StepGraph, Transient
from tfacct.training.saved_tensors import CHOOSE, LOSS

CHUNKS = 8
"""Chunks of all tokens, as torchtune's CEWithChunkedOutputLoss has them by default."""
CHUNK, OTHERS = "Tc", "Td"
"""Axes of the tokens of a chunk, and of those of all others."""
HEAD, HEAD_CAST, SPLIT = "lm_head.weight", "lm_head.cast", "loss.split"
TARGETS = ("loss.targets", "loss.padding")
NORM = "final_norm"
WEIGHT = Transient("V D")
"""The head's weight: a gradient, or under autocast a copy."""


def chunk_axes(batch: Size, tokens: Size) -> dict[str, Size]:
    """Tokens of the first chunk, which runs last, and of the others."""
    first = rounded_up(batch * tokens, CHUNKS)
    return {CHUNK: first, OTHERS: batch * tokens - first}


def chunked_loss(graph: StepGraph, batch: Size, tokens: Size, *, frozen: bool = False) -> StepGraph:
    """The step with its loss in chunks. `frozen`: the head is not trained."""
    after, several = graph.after, batch * tokens > 1
    changed = _under_autocast if after.graph.casts else _plain
    in_forward = (Transient(f"{CHUNK} V", "fp32", 2), WEIGHT) if after.graph.casts else ()
    own = changed(after.graph, several=several, frozen=frozen)
    axes = {**after.axes, **chunk_axes(batch, tokens)}
    return graph._replace(after=after._replace(graph=own, axes=axes), loss_forward=in_forward)


def _plain(graph: LayerGraph, *, several: bool, frozen: bool) -> LayerGraph:
    norm = [name for name in graph.order if name.startswith(NORM)]
    weight = () if frozen else (WEIGHT,)
    done = (*weight, Transient(f"{OTHERS} D")) if several else ()  # gradients of the chunks that have run
    added = Transient("V D", times=2)  # the weight's gradient of a chunk, and the new sum
    backward = [each for each in graph.backward if each.at in norm]
    backward.append(BackwardOp(SPLIT, (Transient("B T D", times=2),)))
    if several and not frozen:
        backward.append(BackwardOp(SPLIT, (added, Transient("B T D"))))
        backward.append(BackwardOp(HEAD, (added, Transient(f"{OTHERS} D"))))
    backward.append(BackwardOp(HEAD, (Transient(f"{CHUNK} V"), Transient(f"{CHUNK} D"), *done)))
    backward.append(BackwardOp(LOSS, (Transient(f"{CHUNK} V", "fp32", 3), *done)))
    saved = [each for each in graph.saved if not each.path.startswith("loss.") and HEAD not in each.saved_for]
    saved.append(SavedTensor(NORM, "B T D", (HEAD,)))  # what the logits are made of again
    saved += [each._replace(saved_for=(HEAD,)) for each in graph.saved if each.path in TARGETS]
    return LayerGraph((*norm, SPLIT, HEAD, LOSS), tuple(saved), tuple(backward))


def _under_autocast(graph: LayerGraph, *, several: bool, frozen: bool) -> LayerGraph:
    """Each chunk of the fp32 hidden states is cast whenever it runs, and so is the head's weight. The weight's gradient
    is added up in 16 bits, and cast once."""
    norm = [name for name in graph.order if name.startswith(NORM)]
    own, done = Transient(f"{CHUNK} D"), (Transient(f"{OTHERS} D", "fp32"),) if several else ()
    backward = [each for each in graph.backward if each.at in norm]
    backward.append(BackwardOp(SPLIT, (Transient("B T D", "fp32", 2),)))
    if frozen:
        backward.append(BackwardOp(HEAD_CAST, (Transient(f"{CHUNK} V"), own, WEIGHT, *done)))
        backward.append(BackwardOp(LOSS, (Transient(f"{CHUNK} V", "fp32", 3), WEIGHT, *done)))
    else:
        summed = (WEIGHT, *done) if several else ()
        backward.append(BackwardOp(HEAD, (WEIGHT, own, Transient("B T D", "fp32"))))
        if several:
            backward.append(BackwardOp(HEAD_CAST, (Transient("V D", times=3), own, *done)))
        backward.append(BackwardOp(HEAD_CAST, (Transient(f"{CHUNK} V"), own, own, WEIGHT, WEIGHT, *summed)))
        backward.append(BackwardOp(LOSS, (Transient(f"{CHUNK} V", "fp32", 3), own, WEIGHT, *summed)))
    saved = [each for each in graph.saved if not each.path.startswith(("loss.", "lm_head."))]
    saved.append(SavedTensor(NORM, "B T D", (HEAD_CAST,), "fp32"))
    saved += [each._replace(saved_for=(HEAD_CAST,)) for each in graph.saved if each.path in TARGETS]
    return LayerGraph((*norm, SPLIT, HEAD, HEAD_CAST, LOSS, CHOOSE), tuple(saved), tuple(backward))
