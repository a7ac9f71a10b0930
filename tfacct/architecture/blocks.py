"""Layers: a list of sublayers and an order. Equal layers are a stack.

Orders: `post` as in Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762); `pre` as in GPT-2; `parallel` as in
PaLM (2204.02311), section 2, and transformers' GPTNeoXLayer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, TypeVar

from tfacct.architecture.parts import (
    Attention,
    CrossAttention,
    Experts,
    FeedForward,
    HyperConnection,
    LatentAttention,
    Mixer,
    MtpProjection,
    Norm,
    Part,
    Residual,
    Scale,
    SelfAttention,
    SharedOutput,
)
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size

Order: TypeAlias = Literal["pre", "post", "parallel"]
PartT = TypeVar("PartT", bound=Part)

POSITIONS = "positions"
"""Trait of attention: whether it has rotary embeddings."""

Named: TypeAlias = tuple[str, Part]
Added: TypeAlias = SelfAttention | CrossAttention | Mixer | FeedForward | Experts | SharedOutput
"""Parts whose results are added to the residual stream."""


@record
class Sublayer:
    """A part whose result is added to the residual stream. Paths have the part's name.

    `norm` is placed by the layer's order; `post_norm` normalizes the result before the addition. `add`: how the result
    is added, a plain addition if None. `scale`: factor of the input. `normed`: the result is added to the part's input
    instead of the residual stream (MiniMaxDecoderLayer). `parallel`: same input as the sublayer before it
    (FalconH1DecoderLayer). `gives`: with `next`, the result replaces the residual stream as input of the next sublayer;
    with `sum`, the sum of both does; neither changes the residual stream (Zamba2HybridLayer). A part that is not called
    is not added, and must have a norm that is not called. `dropout`, `needs_result`: as in `Residual`.
    """

    part: Added
    norm: Norm | None = None
    post_norm: Norm | None = None
    add: Residual | None = None
    scale: float | None = None
    parallel: bool = False
    normed: bool = False
    gives: Literal["stream", "next", "sum"] = "stream"
    dropout: bool = False
    needs_result: bool = False

    @property
    def residual(self) -> Residual:
        """Addition of the result to the residual stream."""
        add = Residual(hidden=self.part.hidden) if self.add is None else self.add
        return replace(add, dropout=self.dropout, needs_result=self.needs_result)

    @property
    def name(self) -> str:
        """Name of the part in paths."""
        return self.part.name

    @property
    def called(self) -> bool:
        """True if it runs."""
        return bool(getattr(self.part, "called", True))

    def norms(self) -> Iterator[Named]:
        """Norm and factor of the input, if any, with their names in paths."""
        if self.norm is not None:
            yield f"{self.name}_norm", self.norm
        if self.scale is not None:
            yield f"{self.name}_scale", Scale(hidden=self.part.hidden, factor=self.scale)

    def result(self) -> Iterator[Named]:
        """Part and norm of its result, with their names in paths."""
        yield self.name, self.part
        if self.post_norm is not None:
            yield f"{self.name}_post_norm", self.post_norm

    def added(self) -> Iterator[Named]:
        """Residual addition, if any, with its name in paths."""
        if self.called and self.gives != "next":
            yield f"{self.name}_add", self.residual


@record
class Block:
    """A layer: sublayers, each added to the residual stream x.

    `pre`: x + part(norm(x)), one after the other. `post`: norm(x + part(x)). `parallel`: all have the same input x, and
    a sublayer without a norm uses the result of the first norm. In a `pre` layer, a `parallel` sublayer uses the norm
    of the sublayer before it. `streams`: the part that reads and writes several residual streams. With
    hyper-connections, each sublayer reads a weighted sum of the streams; its result is added to all, which are mixed.
    With a family-specific part, the layer reads its predicted first stream, and the layer's result corrects all
    streams.
    """

    sublayers: tuple[Sublayer, ...]
    order: Order = "pre"
    streams: Part | None = None

    @classmethod
    def of(cls, *parts: Added, norm: Norm | None = None, post_norm: Norm | None = None, order: Order = "pre") -> Block:
        """Return a layer with the same norms for all parts."""
        return cls(tuple(Sublayer(part, norm, post_norm) for part in parts), order)

    def parts(self) -> Iterator[Named]:
        """Parts in execution order, with their names in paths."""
        if self.streams is not None and not isinstance(self.streams, HyperConnection):
            yield self.streams.name, self.streams
        if self.order == "parallel":
            for sublayer in self.sublayers:
                yield from (*sublayer.norms(), *sublayer.result())
            for sublayer in self.sublayers:
                yield from sublayer.added()
            return
        if isinstance(self.streams, HyperConnection):
            for sublayer in self.sublayers:
                at = f"{self.streams.name}.{sublayer.name}"
                yield at, self.streams
                yield from (*sublayer.norms(), *sublayer.result())
                yield at, self.streams.after()
            return
        for sublayer in self.sublayers:
            runs = (*sublayer.result(), *sublayer.added())
            yield from (*runs, *sublayer.norms()) if self.order == "post" else (*sublayer.norms(), *runs)

    def find(self, kind: type[PartT]) -> PartT | None:
        """First part of this kind; None if there is none."""
        return next((sublayer.part for sublayer in self.sublayers if isinstance(sublayer.part, kind)), None)

    @property
    def attention(self) -> SelfAttention | None:
        """Self-attention of the layer; None if it has none."""
        return self.find(SelfAttention)

    @property
    def window(self) -> Size | None:
        """Sliding window in keys; None without one."""
        attention = self.attention
        return None if attention is None else attention.window

    @property
    def traits(self) -> dict[str, str]:
        """Traits that distinguish kinds of layers, by category: sequence, window, mlp, keys, cache, tokens,
        positions."""
        found: dict[str, str] = {}
        attention, mlp = self.attention, self.find(FeedForward)
        mixers = [sublayer.name for sublayer in self.sublayers if isinstance(sublayer.part, Mixer)]
        if attention is not None:
            kind = "latent" if isinstance(attention, LatentAttention) else "attention"
            found["sequence"] = " ".join([kind, *mixers])
            tiled = isinstance(attention, Attention) and attention.tiles is not None
            found["window"] = "full" if attention.window is None and not tiled else "windowed"
        elif mixers:
            found["sequence"] = " ".join(mixers)
        elif self.find(CrossAttention) is not None:
            found["sequence"] = CrossAttention.name
        if self.find(Experts) is not None:
            found["mlp"] = "experts"
        elif mlp is not None:
            found["mlp"] = mlp.kind
        if attention is None:
            return found
        if isinstance(attention, LatentAttention):
            if attention.indexer is not None:
                found["keys"] = "indexed" if attention.indexes else "following"
            if attention.borrowed:
                found["cache"] = "borrowing"
        if isinstance(attention, Attention):
            found["keys"] = "indexed" if attention.indexer else "borrowing" if attention.borrowed else "keeping"
        if attention.compression is not None:
            found["tokens"] = attention.compression.label
        found[POSITIONS] = "unrotated" if attention.rotary is None else "rotated"
        return found


@record
class Stack:
    """`count` equal layers.

    `numbers`: their numbers in the model; empty if they follow the previous stack. `shared_weights`: prefixes of the
    tensors that all layers share with the first, as in Zamba2 (arXiv 2411.15242), section 2, or `all`, as in ALBERT
    (1909.11942), section 3.1.
    """

    block: Block
    count: Size
    numbers: tuple[int, ...] = ()
    shared_weights: tuple[str, ...] | Literal["all"] = ()

    @property
    def once(self) -> bool:
        """True if the layers share all weights."""
        return self.shared_weights == "all"

    @property
    def shared(self) -> tuple[str, ...]:
        """Prefixes of shared tensors, if not all are shared."""
        return () if self.shared_weights == "all" else self.shared_weights

    def stored_once(self, path: str) -> bool:
        """True if all layers share the tensor at this path."""
        return self.once or paths.among(path, self.shared)


def stacks(blocks: Sequence[Block]) -> tuple[Stack, ...]:
    """Stacks of equal layers, from layers in execution order."""
    alike: list[tuple[Block, list[int]]] = []
    same: dict[int, list[int]] = {}  # most layers are the same object
    for number, block in enumerate(blocks):
        known = same.get(id(block)) or next((numbers for other, numbers in alike if other == block), None)
        if known is None:
            alike.append((block, known := []))
        same[id(block)] = known
        known.append(number)
    return tuple(Stack(block, len(numbers), tuple(numbers)) for block, numbers in alike)


@record
class MtpHead:
    """`count` multi-token prediction heads, each for one token further ahead.

    Each has a projection of the residual stream and the next token's embedding, a layer, a norm, and logits from the
    model's head. "DeepSeek-V3" (arXiv 2412.19437), section 2.2.
    """

    projection: MtpProjection
    block: Block
    norm: Norm
    count: int

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Parts with their names in paths, without the model's head."""
        yield from (("join", self.projection), *self.block.parts(), ("head_norm", self.norm))


def numbered(stacks: Sequence[Stack]) -> list[Sequence[int]]:
    """Layer numbers of each stack; empty if the count is a symbol or an array."""
    found: list[Sequence[int]] = []
    first = 0
    for stack in stacks:
        if not isinstance(stack.count, int):
            found.append(())
        elif stack.numbers:
            found.append(stack.numbers)
        else:
            found.append(range(first, first + stack.count))
            first += stack.count
    return found


def in_order(stacks: Sequence[Stack]) -> list[Block]:
    """All layers of the stacks in execution order."""
    placed = {
        number: stack.block for stack, numbers in zip(stacks, numbered(stacks), strict=True) for number in numbers
    }
    return [placed[number] for number in sorted(placed)]
