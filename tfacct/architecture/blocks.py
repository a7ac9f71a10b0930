"""Layers: a list of sublayers and an order. Equal layers are a stack.

Orders: `post` as in Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762); `pre` as in GPT-2; `parallel` as in
PaLM (2204.02311), section 2, and transformers' GPTNeoXLayer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
"""Trait of attention: whether queries and keys are rotated by their positions."""

Named: TypeAlias = tuple[str, Part]
Added: TypeAlias = SelfAttention | CrossAttention | Mixer | FeedForward | Experts | SharedOutput
"""Parts whose results are added to the stream."""


@record
class Sublayer:
    """A part whose result is added to the stream. Its paths carry the part's name.

    The block's order decides where `norm` stands; `post_norm` is the norm of the result, before the addition. `add`:
    how the result joins the residual stream, a plain addition if None. `scale` multiplies what the part reads. If it is
    `normed`, the result is added to what the part read, in place of the stream (MiniMaxDecoderLayer). One that runs
    `parallel` reads what the sublayer before it read (FalconH1DecoderLayer). What it `gives` to the `next` sublayer is
    read there in place of the stream, a `sum` is that of its result and the stream; neither is added to the stream
    itself (Zamba2HybridLayer).
    A part that is not called is not added either, and must come with a norm that is not called.
    """

    part: Added
    norm: Norm | None = None
    post_norm: Norm | None = None
    add: Residual | None = None
    scale: float | None = None
    parallel: bool = False
    normed: bool = False
    gives: Literal["stream", "next", "sum"] = "stream"

    @property
    def residual(self) -> Residual:
        """How its result joins the residual stream."""
        return Residual(hidden=self.part.hidden) if self.add is None else self.add

    @property
    def name(self) -> str:
        """Name of its part in paths."""
        return self.part.name

    @property
    def called(self) -> bool:
        """True if it runs."""
        return bool(getattr(self.part, "called", True))

    def norms(self) -> Iterator[Named]:
        """Norm and factor of what it reads, where it has them, by their names in paths."""
        if self.norm is not None:
            yield f"{self.name}_norm", self.norm
        if self.scale is not None:
            yield f"{self.name}_scale", Scale(hidden=self.part.hidden, factor=self.scale)

    def result(self) -> Iterator[Named]:
        """Part and the norm of its result, by their names in paths."""
        yield self.name, self.part
        if self.post_norm is not None:
            yield f"{self.name}_post_norm", self.post_norm

    def added(self) -> Iterator[Named]:
        """Addition to the stream, by its name in paths."""
        if self.called and self.gives != "next":
            yield f"{self.name}_add", self.residual


@record
class Block:
    """Sublayers, each added to the stream x that it reads.

    `pre`: x + part(norm(x)), one after the other. `post`: norm(x + part(x)). `parallel`: all read the same x, and a
    sublayer without a norm reads the result of the first one's norm. In a block that is `pre`, one that runs
    `parallel` to another reads the same norm's result. `streams`: what reads and writes several residual streams. With
    hyper-connections each sublayer reads a sum of the streams, and its result goes to all of them, mixed anew. With a
    family's own part, the block reads the first stream that it predicts, and the block's result corrects all.
    """

    sublayers: tuple[Sublayer, ...]
    order: Order = "pre"
    streams: Part | None = None

    @classmethod
    def of(cls, *parts: Added, norm: Norm | None = None, post_norm: Norm | None = None, order: Order = "pre") -> Block:
        """Return a block whose parts all have the same norms."""
        return cls(tuple(Sublayer(part, norm, post_norm) for part in parts), order)

    def parts(self) -> Iterator[Named]:
        """Parts by their names in paths, in the order in which they run."""
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
        """Part of this kind; None if no sublayer has one."""
        return next((sublayer.part for sublayer in self.sublayers if isinstance(sublayer.part, kind)), None)

    @property
    def attention(self) -> SelfAttention | None:
        """Self-attention of the block; None if it has none."""
        return self.find(SelfAttention)

    @property
    def window(self) -> Size | None:
        """Number of keys that a query sees; None if that is not bounded."""
        attention = self.attention
        return None if attention is None else attention.window

    @property
    def traits(self) -> dict[str, str]:
        """Traits that tell a block from blocks of other kinds, by question: sequence, window, network, positions."""
        found = {}
        attention, routed = self.attention, self.find(Experts) is not None
        attends = attention is not None
        mixers = [sublayer.name for sublayer in self.sublayers if isinstance(sublayer.part, Mixer)]
        if attends or mixers:
            kind = "latent" if self.find(LatentAttention) else "attention"
            found["sequence"] = " ".join([*([kind] if attends else []), *mixers])
        elif self.find(CrossAttention) is not None:
            found["sequence"] = CrossAttention.name
        if attends:
            tiled = isinstance(attention, Attention) and attention.tiles is not None
            found["window"] = "full" if self.window is None and not tiled else "windowed"
        network = self.find(FeedForward)
        if routed or network is not None:
            found["network"] = "experts" if routed or network is None else network.kind
        if isinstance(attention, LatentAttention) and attention.indexer is not None:
            found["keys"] = "choosing" if attention.indexes else "following"
        if isinstance(attention, LatentAttention) and attention.borrowed:
            found["cache"] = "borrowing"
        if isinstance(attention, Attention):
            found["keys"] = "choosing" if attention.indexer else "borrowing" if attention.borrowed else "keeping"
        if attention is not None and attention.compression is not None:
            found["tokens"] = attention.compression.label
        if attention is not None:
            found[POSITIONS] = "unrotated" if attention.rotary is None else "rotated"
        return found


@record
class Stack:
    """Equal blocks, `count` of them. `numbers`: their numbers in the model; empty if they follow the stack before.
    `shared_weights`: names with which the tensors begin that all of them share with the first, as in Zamba2 (arXiv
    2411.15242), section 2, or `all`, as in ALBERT (1909.11942), section 3.1.
    """

    block: Block
    count: Size
    numbers: tuple[int, ...] = ()
    shared_weights: tuple[str, ...] | Literal["all"] = ()

    @property
    def once(self) -> bool:
        """True if its blocks share all weights."""
        return self.shared_weights == "all"

    @property
    def shared(self) -> tuple[str, ...]:
        """Names with which the tensors begin that its blocks share, if they do not share all."""
        return () if self.shared_weights == "all" else self.shared_weights

    def stored_once(self, path: str) -> bool:
        """True if all its blocks use one tensor by this path."""
        return self.once or paths.among(path, self.shared)


def stacks(blocks: Sequence[Block]) -> tuple[Stack, ...]:
    """Stacks of equal blocks, from blocks in the order in which they run."""
    alike: list[tuple[Block, list[int]]] = []
    same: dict[int, list[int]] = {}  # most layers are the very same block
    for number, block in enumerate(blocks):
        known = same.get(id(block)) or next((numbers for other, numbers in alike if other == block), None)
        if known is None:
            alike.append((block, known := []))
        same[id(block)] = known
        known.append(number)
    return tuple(Stack(block, len(numbers), tuple(numbers)) for block, numbers in alike)


@record
class MtpHead:
    """Multi-token prediction heads, `count` of them, each for one token further ahead.

    Each has a projection of the stream and the next token's row, a block, a norm, and logits by the model's own head.
    "DeepSeek-V3" (arXiv 2412.19437), section 2.2.
    """

    projection: MtpProjection
    block: Block
    norm: Norm
    count: int

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Parts by their names in paths; the model's own head is not among them."""
        yield from (("join", self.projection), *self.block.parts(), ("head_norm", self.norm))


def numbered(stacks: Sequence[Stack]) -> list[Sequence[int]]:
    """Numbers of the blocks in each stack; empty if its count is a symbol or an array."""
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
    """Every block of the stacks, in the order in which they run."""
    placed = {number: stack.block for stack, own in zip(stacks, numbered(stacks), strict=True) for number in own}
    return [placed[number] for number in sorted(placed)]
