"""A transformer: tables in front, stacks of blocks, a norm and a head behind. Puts the parts' lines into one ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from tfacct.blocks import UNMARKED, Ahead, AnyBlock, Block, BlockT, Stack, in_order, numbered
from tfacct.errors import UsageError
from tfacct.ledger import Group, Ledger
from tfacct.lines import Idle, Line, Matmul, Pointwise, Table
from tfacct.notation import Size
from tfacct.parts import (
    Attention,
    Embedding,
    FeedForward,
    Grouped,
    Head,
    LatentAttention,
    Norm,
    Part,
    Positions,
    RelativeBias,
    Segments,
)


@cache
def part_of(path: str) -> str:
    """The part of the model a path belongs to: attn, cross, mlp, mixer, norms, embed, pos_embed, lm_head; mtp and the
    encoder with all they have."""
    words = path.split(".")
    part = words[2] if words[0] == "blocks" else words[0]
    return "norms" if part.endswith("_norm") else part


def is_table(path: str) -> bool:
    """Whether a parameter is a table of tokens, positions or segments: what embedding parameters are."""
    return path.removeprefix("encoder.") in ("embed.weight", "pos_embed.weight", "type_embed.weight")


def component_of(path: str, line: Matmul) -> str:
    """The component a product is summed under: its part, but of attention the products of two activations stand
    apart."""
    part = part_of(path)
    if part != "attn":
        return part
    return "attn_projections" if line.weight_axes() is not None else "attn_scores_values"


@dataclass(frozen=True, slots=True)
class Encoder:
    """What reads a source, all of it at once: blocks that are not causal, between tables and a norm of its own."""

    embed: Embedding
    stacks: tuple[Stack, ...]
    positions: Positions | None = None
    bias: RelativeBias | None = None
    embed_norm: Norm | None = None
    final_norm: Norm | None = None

    def ends(self) -> tuple[dict[str, Part], dict[str, Part]]:
        """What stands before the blocks and behind them, by the names their paths carry."""
        front: dict[str, Part | None] = {"embed": self.embed, "pos_embed": self.positions}
        front |= {"rel_bias": self.bias, "embed_norm": self.embed_norm}
        return _there(front), _there({"final_norm": self.final_norm})


def _there(named: dict[str, Part | None]) -> dict[str, Part]:
    return {name: part for name, part in named.items() if part is not None}


@dataclass(frozen=True, slots=True)
class Transformer:
    """Tables, stacks of blocks, a norm and a head. Blocks of different kinds are different stacks.

    With an `encoder` it continues what that has read. `ahead` is run after the head.
    """

    embed: Embedding
    stacks: tuple[Stack, ...]
    final_norm: Norm | None
    head: Head
    positions: Positions | None = None
    embed_norm: Norm | None = None
    ahead: Ahead | None = None
    segments: Segments | None = None
    bias: RelativeBias | None = None
    encoder: Encoder | None = None

    def ends(self) -> tuple[dict[str, Part], dict[str, Part]]:
        """What stands before the blocks and behind them, by the names their paths carry."""
        front: dict[str, Part | None]
        front = {"embed": self.embed, "pos_embed": self.positions, "type_embed": self.segments}
        front |= {"rel_bias": self.bias, "embed_norm": self.embed_norm}
        return _there(front), _there({"final_norm": self.final_norm, "lm_head": self.head})

    @property
    def every_stack(self) -> tuple[Stack, ...]:
        """The encoder's stacks, where there is one, then the others."""
        return (*(() if self.encoder is None else self.encoder.stacks), *self.stacks)

    def parts(self) -> list[Part]:
        """Every part: those at the ends, then those of one block of each kind."""
        ends = [self.ends(), *(() if self.encoder is None else (self.encoder.ends(),))]
        at_ends = [part for front, back in ends for part in (*front.values(), *back.values())]
        blocks = [part for stack in self.every_stack for _, part in stack.block.parts()]
        ahead = [] if self.ahead is None else [part for _, part in self.ahead.parts()]
        return [*at_ends, *blocks, *ahead]

    def ledger(self) -> Ledger:
        """Every line of the model."""
        front, back = self.ends()
        blocks = _groups(self.stacks, self.numbers(), self.kinds()[-len(self.stacks) :])
        return Ledger(
            (*self._encoder(), _group(front.items()), *blocks, _group(back.items()), *self._ahead()),
        )

    def _encoder(self) -> Iterator[Group]:
        """The encoder's lines: those of a decoder, with source tokens for tokens."""
        if self.encoder is None:
            return
        front, back = self.encoder.ends()
        stacks = self.encoder.stacks
        blocks = _groups(stacks, numbered(stacks), self.kinds()[: len(stacks)])
        for group in (_group(front.items()), *blocks, _group(back.items())):
            yield replace(group, lines=tuple(_of_source(line) for line in group.lines))

    def _ahead(self) -> Iterator[Group]:
        if self.ahead is not None:
            group = _group([(f"mtp.*.{name}", part) for name, part in self.ahead.parts()])
            lines = (*group.lines, *self.head.again("mtp.*.lm_head"))
            axes = {**group.axes, **self.head.axes()}
            yield replace(group, lines=lines, axes=axes, count=self.ahead.count, numbers=range(self.ahead.count))

    def numbers(self) -> list[Sequence[int]]:
        """Which blocks each stack behind the encoder holds; none where its count is a symbol or an array."""
        return numbered(self.stacks)

    def kinds(self) -> list[str]:
        """What the blocks of every stack are called beside the others': encoder, windowed or full, experts or dense;
        nothing where there is one stack, of a decoder nothing for being one."""
        marks = [stack.block.marks for stack in self.stacks]
        differing = [mark for mark in UNMARKED if len({mark in own for own in marks}) > 1]
        names = [" ".join(mark if mark in own else UNMARKED[mark] for mark in differing) for own in marks]
        names = [*(["encoder"] * (len(self.every_stack) - len(names))), *names]
        return [
            f"{name} {names[: i + 1].count(name)}".strip() if names.count(name) > 1 else name
            for i, name in enumerate(names)
        ]

    def blocks(self) -> list[AnyBlock]:
        """Every block behind the encoder, in the order in which they run."""
        return in_order(self.stacks)

    @property
    def attention(self) -> Attention | LatentAttention | None:
        """The attention of the first block that has any; None in a model without attention."""
        return next((stack.block.attn for stack in self.stacks if isinstance(stack.block, Block)), None)

    def mapped(self, change: Callable[[Any], Any], counts: Sequence[Size] | None = None) -> Transformer:
        """The same model with every part put through `change`, and with so many blocks in every stack, where given."""

        def changed(part: Any) -> Any:
            return change(part) if isinstance(part, Part) else part

        def block(old: BlockT) -> BlockT:
            return type(old)(**{part.name: changed(getattr(old, part.name)) for part in fields(old)})

        def further(old: Ahead | None) -> Ahead | None:
            return old and Ahead(changed(old.joining), block(old.block), changed(old.norm), old.count)

        def reading(old: Encoder | None, stacks: Sequence[Stack]) -> Encoder | None:
            own = {field.name: changed(getattr(old, field.name)) for field in fields(Encoder)} if old else {}
            return old and Encoder(**{**own, "stacks": tuple(stacks)})

        blocks = [replace(stack, block=block(stack.block)) for stack in self.every_stack]
        if counts is not None:
            blocks = [Stack(old.block, count) for old, count in zip(blocks, counts, strict=True)]
        own = {field.name: changed(getattr(self, field.name)) for field in fields(self)}
        own |= {"stacks": tuple(blocks[-len(self.stacks) :]), "ahead": further(self.ahead)}
        return Transformer(**{**own, "encoder": reading(self.encoder, blocks[: -len(self.stacks)])})

    def with_kv_heads(self, kv_heads: Size | None) -> Transformer:
        """The same model with its query heads sharing `kv_heads` key/value heads; None: each has its own.

        Keys and values that come from a latent have no heads to share: with None they are kept by head, else this is a
        UsageError, and so it is without attention.
        """
        if self.attention is None:
            raise UsageError("num_key_value_heads: there is no attention here, so there are no heads")

        def shared(part: Part) -> Part:
            if isinstance(part, LatentAttention):
                if kv_heads is not None:
                    raise UsageError(
                        "num_key_value_heads: keys and values come from a latent here, which no heads share"
                    )
                return part.running("unpacked")
            if not isinstance(part, Grouped):
                return part
            return part.with_kv_heads(part.heads if kv_heads is None else kv_heads)

        return self.mapped(shared)

    def all_called(self) -> Transformer | None:
        """The same model with every network called that is stored and not run; None where all are."""
        if all(getattr(part, "called", True) for part in self.parts()):
            return None

        def called(part: Part) -> Part:
            return replace(part, called=True) if isinstance(part, (FeedForward, Norm)) else part

        return self.mapped(called)

    def with_positions(self, context: int) -> Transformer:
        """The same model with a position table for so long a context, where it has one."""
        if self.positions is None:
            return self
        return replace(self, positions=replace(self.positions, rows=context + self.positions.offset))


def _of_source(line: Any) -> Any:
    """An encoder's line: new source tokens for new tokens, and those seen for keys."""
    path = f"encoder.{line.path}"
    if isinstance(line, Table):
        return replace(line, path=path)
    if isinstance(line, Idle):
        return Idle(_of_source(line.of))
    if isinstance(line, Pointwise) and line.module is not None:
        line = replace(line, module=f"encoder.{line.module}")
    return replace(line, path=path, spec=re.sub(r"\b[TS]\b", lambda axis: {"T": "I", "S": "J"}[axis[0]], line.spec))


def _groups(stacks: Sequence[Stack], numbers: Sequence[Sequence[int]], kinds: Sequence[str]) -> Iterator[Group]:
    for stack, own, kind in zip(stacks, numbers, kinds, strict=True):
        parts = ((f"blocks.*.{name}", part) for name, part in stack.block.parts())
        yield _group(parts, stack.count, own, kind)


def _group(parts: Iterable[tuple[str, Part]], count: Size = 1, numbers: Sequence[int] = (), kind: str = "") -> Group:
    axes: dict[str, Size] = {}
    lines: list[Line] = []
    for at, part in parts:
        for axis, value in part.axes().items():
            if axes.setdefault(axis, value) is not value and axes[axis] != value:
                raise ValueError(f"{at}: axis {axis} is {value} here and {axes[axis]} beside it")
        lines += part.lines(at)
    return Group(tuple(lines), axes, count, numbers, kind)
