"""Blocks of a transformer, of each kind there is, and stacks of equal ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from tfacct.notation import Size
from tfacct.parts import (
    Attention,
    CrossAttention,
    Experts,
    FeedForward,
    Joining,
    LatentAttention,
    Mixer,
    Norm,
    Part,
    Residual,
)

Order: TypeAlias = Literal["pre", "post", "parallel"]


@dataclass(frozen=True, slots=True)
class Block:
    """One block: attention and a feed-forward network, each added to the stream it reads; between them, where there is
    an encoder, `cross` attention to what it read.

    `order` is `pre`: x + attn(attn_norm(x)), then x + mlp(mlp_norm(x)); `post`: attn_norm(x + attn(x)), then
    mlp_norm(x + mlp(x)); `parallel`: x + attn(attn_norm(x)) + mlp(mlp_norm(x)), where without a norm of its own the
    network reads what attention reads. The `_post_norm`s are of a result before it is added. A network that is not
    `called` is not added either; its norm is to be one that is not called.
    """

    attn_norm: Norm | None
    attn: Attention | LatentAttention
    mlp_norm: Norm | None
    mlp: FeedForward | Experts
    attn_post_norm: Norm | None = None
    mlp_post_norm: Norm | None = None
    order: Order = "pre"
    cross_norm: Norm | None = None
    cross: CrossAttention | None = None

    def parts(self) -> Iterator[tuple[str, Part]]:
        """The parts by the names their paths carry, in the order in which they run."""
        attn_add, mlp_add = Residual(self.attn.hidden), Residual(self.mlp.hidden)
        cross_add = None if self.cross is None else Residual(self.cross.hidden)
        attn = (("attn", self.attn), ("attn_post_norm", self.attn_post_norm))
        mlp = (("mlp", self.mlp), ("mlp_post_norm", self.mlp_post_norm))
        running: dict[Order, tuple[tuple[str, Part | None], ...]] = {
            "pre": (
                *(("attn_norm", self.attn_norm), *attn, ("attn_add", attn_add)),
                *(("cross_norm", self.cross_norm), ("cross", self.cross), ("cross_add", cross_add)),
                *(("mlp_norm", self.mlp_norm), *mlp, ("mlp_add", mlp_add)),
            ),
            "post": (
                *(*attn, ("attn_add", attn_add), ("attn_norm", self.attn_norm)),
                *(("cross", self.cross), ("cross_add", cross_add), ("cross_norm", self.cross_norm)),
                *(*mlp, ("mlp_add", mlp_add), ("mlp_norm", self.mlp_norm)),
            ),
            "parallel": (
                *(("attn_norm", self.attn_norm), *attn, ("mlp_norm", self.mlp_norm), *mlp),
                *(("attn_add", attn_add), ("mlp_add", mlp_add)),
            ),
        }
        idle = isinstance(self.mlp, FeedForward) and not self.mlp.called
        for name, part in running[self.order]:
            if part is not None and not (idle and name == "mlp_add"):
                yield name, part

    @property
    def window(self) -> Size | None:
        """Keys that a query sees, where that is bounded."""
        return self.attn.window if isinstance(self.attn, Attention) else None

    @property
    def marks(self) -> tuple[str, ...]:
        """What blocks of other kinds may not have."""
        windowed, experts = self.window is not None, isinstance(self.mlp, Experts)
        return (*(("windowed",) if windowed else ()), *(("experts",) if experts else ()))


@dataclass(frozen=True, slots=True)
class MixerBlock:
    """One block of a state-space model: x + mixer(norm(x)). No attention, and no network beside it."""

    mixer_norm: Norm
    mixer: Mixer

    def parts(self) -> Iterator[tuple[str, Part]]:
        """The parts by the names their paths carry, in the order in which they run."""
        added = Residual(self.mixer.hidden)
        yield from (("mixer_norm", self.mixer_norm), ("mixer", self.mixer), ("mixer_add", added))

    @property
    def window(self) -> None:
        """No query sees keys."""
        return None

    @property
    def marks(self) -> tuple[str, ...]:
        """What blocks of other kinds may not have."""
        return ()


AnyBlock: TypeAlias = Block | MixerBlock
BlockT = TypeVar("BlockT", bound=AnyBlock)

UNMARKED = {"windowed": "full", "experts": "dense"}
"""What a block is called that has not what others have."""


@dataclass(frozen=True, slots=True)
class Stack:
    """`count` equal blocks. `numbers`: which ones of the model; none where they follow the stack before."""

    block: AnyBlock
    count: Size
    numbers: tuple[int, ...] = ()


def stacks(blocks: Sequence[AnyBlock]) -> tuple[Stack, ...]:
    """Blocks in the order in which they run, as stacks of equal ones."""
    alike: list[tuple[AnyBlock, list[int]]] = []
    same: dict[int, list[int]] = {}  # most layers are the very same block
    for number, block in enumerate(blocks):
        known = same.get(id(block)) or next((numbers for other, numbers in alike if other == block), None)
        if known is None:
            alike.append((block, known := []))
        same[id(block)] = known
        known.append(number)
    return tuple(Stack(block, len(numbers), tuple(numbers)) for block, numbers in alike)


@dataclass(frozen=True, slots=True)
class Ahead:
    """`count` layers that each foresee one token more (MTP): the stream joined with the next token's row, a block, a
    norm, and the logits of the model's own head."""

    joining: Joining
    block: Block
    norm: Norm
    count: int

    def parts(self) -> Iterator[tuple[str, Part]]:
        """The parts by the names their paths carry; the head is the model's."""
        yield from (("join", self.joining), *self.block.parts(), ("head_norm", self.norm))


def numbered(stacks: Sequence[Stack]) -> list[Sequence[int]]:
    """Which blocks each stack holds; none where its count is a symbol or an array."""
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


def in_order(stacks: Sequence[Stack]) -> list[AnyBlock]:
    """Every block, in the order in which they run."""
    placed = {number: stack.block for stack, own in zip(stacks, numbered(stacks), strict=True) for number in own}
    return [placed[number] for number in sorted(placed)]
