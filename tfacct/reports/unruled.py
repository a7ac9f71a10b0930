"""Parts that no rule divides among ranks, in words."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.blocks import Stack
from tfacct.architecture.parts import (
    Attention,
    Embedding,
    Experts,
    FeedForward,
    Head,
    LatentAttention,
    Norm,
    Part,
    Positions,
    Residual,
)
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words


def unruled(shape: Transformer) -> str | None:
    """The first part that has no rule here, in words; None if every part has one."""
    return next(_unruled(shape), None)


def _unruled(shape: Transformer) -> Iterator[str]:
    if shape.encoder is not None:
        yield shape.encoder.words
    if shape.mtp is not None:
        yield "multi-token prediction heads"
    if shape.head is None:
        yield "a model without a language model's head"
    elif shape.classes is not None:
        yield "scores of classes beside a language model's head"
    front, back = shape.ends()
    for part in (*front.values(), *back.values()):
        yield from _of_part(part)
    for stack in shape.stacks:
        yield from _of_stack(stack)


def _of_stack(stack: Stack) -> Iterator[str]:
    if stack.shares:
        yield "blocks that share their weights"
    if stack.block.order == "post":
        yield "norms behind the addition"
    for _, part in stack.block.parts():
        yield from _of_part(part)


def _of_part(part: Part) -> Iterator[str]:
    """What of a part has no rule."""
    match part:
        case Attention():
            if (
                not part.causal
                or not part.keep
                or part.score_function != "product"
                or part.biased
                or part.buckets is not None
            ):
                yield "attention that is not plain"
            if part.chosen is not None:
                yield "an indexer that chooses blocks of keys"
            if part.borrowed or part.keys_as_values:
                yield "attention with borrowed or shared projections"
            if part.read_norm is not None:
                yield "a norm over all heads together"
        case FeedForward():
            if part.bent:
                yield "an activation with learned numbers"
            if part.norm is not None or part.inner_norm is not None or not part.called:
                yield "a network with a norm of its own, or one that is never called"
        case LatentAttention():
            if part.form == "absorbed":
                yield "absorbed latent attention"
        case Experts():
            if part.norms is not None or part.latent is not None:
                yield "experts with norms of their own, or of a narrower token"
        case Norm():
            if part.shared or part.narrow or not part.called:
                yield "norms that are shared, narrow or never called"
        case Embedding():
            if part.width is not None or part.shared:
                yield "a token table narrower than the model, or a shared one"
        case Positions():
            if not (part.stored and part.trained) or part.narrow:
                yield "positions that are not learned"
        case Head():
            if part.width is not None or part.transform is not None:
                yield "a head with a transform"
        case Residual():
            return
        case _:
            yield in_words(part)
