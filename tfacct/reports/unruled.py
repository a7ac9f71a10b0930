"""Parts that no rule divides among ranks, in words."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.blocks import Stack
from tfacct.architecture.parts import (
    Attention,
    Classes,
    CrossAttention,
    Embedding,
    Experts,
    FeedForward,
    Head,
    LatentAttention,
    Norm,
    Part,
    Pooler,
    Positions,
    RelativeBias,
    Residual,
    Segments,
    Stem,
)
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words


def unruled(shape: Transformer) -> str | None:
    """The first part that has no rule here, in words; None if every part has one."""
    return next(_unruled(shape), None)


def _unruled(shape: Transformer) -> Iterator[str]:
    if shape.encoder is not None and shape.encoder.given:
        yield shape.encoder.words
    if shape.mtp is not None:
        yield "multi-token prediction heads"
    for front, back in (shape.ends(), *(() if shape.encoder is None else (shape.encoder.ends(),))):
        for part in (*front.values(), *back.values()):
            yield from _of_part(part)
    for stack in shape.every_stack:
        yield from _of_stack(stack)


def _of_stack(stack: Stack) -> Iterator[str]:
    if stack.shared_weights:
        yield "blocks that share their weights"
    for _, part in stack.block.parts():
        yield from _of_part(part)


def _of_part(part: Part) -> Iterator[str]:
    """What of a part has no rule."""
    if part.mesh_unsupported:
        yield part.mesh_unsupported
        return
    match part:
        case Attention():
            if part.score_function != "product":
                yield "attention that is not plain"
            if part.indexer is not None:
                yield "an indexer that chooses blocks of keys"
            if part.borrowed or part.keys_as_values:
                yield "attention with borrowed or shared projections"
            if part.read_norm is not None and part.read_norm.together:
                yield "a norm over all heads together"
        case FeedForward():
            if part.norm is not None or part.inner_norm is not None or not part.called:
                yield "a network with a norm of its own, or one that is never called"
        case LatentAttention():
            if part.mla_mode == "absorbed":
                yield "absorbed latent attention"
            if part.borrowed or (part.indexer is not None and part.indexer.mesh_unsupported):
                yield "latents of another block, or an indexer that reads the stream"
        case Experts():
            if part.norms is not None or part.latent is not None:
                yield "experts with norms of their own, or of a narrower token"
        case CrossAttention():
            if part.score_function != "product" or part.qk_norm is not None or part.source_hidden is not None:
                yield "cross-attention that is not plain"
        case Norm():
            if part.shared or not part.called:
                yield "norms that are shared or never called"
        case Embedding():
            if part.rows is not None:
                yield "a token table of other rows than the vocabulary"
        case Residual() | Positions() | Segments() | RelativeBias() | Head() | Pooler() | Classes() | Stem():
            return
        case _:
            yield in_words(part)


def gathered_elsewhere(shape: Transformer) -> Iterator[str]:
    """What of a model reads the stream elsewhere than behind a norm: which of its readers gather it is a choice."""
    if encodes(shape):
        yield "an encoder"
    if shape.head is not None and shape.head.transform is not None:
        yield "a head with a transform"
    if any(stack.block.order == "post" for stack in shape.stacks):
        yield "norms behind the addition"
    if shape.segments is not None or shape.bias is not None:
        yield "tables of segments or of distances"


def unparallel(shape: Transformer) -> str:
    """Why torch's plan of sequence parallelism, which gathers what a norm gives for the product behind it, says nothing
    of an encoder."""
    if shape.encoder is not None:
        return "all blocks of the decoder read what the encoder gives, and which of them gathers it is a choice"
    if any(stack.block.order == "post" for stack in shape.stacks):
        return "products read sums behind a norm, which the next addition reads too: which of them gathers is a choice"
    if shape.segments is not None or shape.bias is not None or shape.positions is not None:
        return "tables beside that of the tokens have no place in torch's plan"
    return "torch's plan was compared with decoders alone"


def encodes(shape: Transformer) -> bool:
    """True of an encoder, alone or in front of a decoder."""
    return shape.encoder is not None or any(not getattr(part, "causal", True) for part in shape.attentions)


def in_parallel(stack: Stack) -> bool:
    """True if sublayers of its blocks read one tensor, or stand beside another."""
    return stack.block.order == "parallel" or any(sublayer.parallel for sublayer in stack.block.sublayers)
