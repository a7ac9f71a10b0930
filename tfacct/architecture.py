"""A transformer: tables in front, stacks of blocks, a norm and a head behind. Puts the parts' lines into one ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

from tfacct.ledger import Group, Ledger
from tfacct.lines import Matmul
from tfacct.notation import Size
from tfacct.parts import Attention, Embedding, FeedForward, Head, Norm, Part, Positions, Residual


def part_of(path: str) -> str:
    """The part of the model a path belongs to: attn, mlp, norms, embed, pos_embed, lm_head."""
    words = path.split(".")
    part = words[2] if words[0] == "blocks" else words[0]
    return "norms" if part.endswith("_norm") else part


def component_of(path: str, line: Matmul) -> str:
    """The component a product is summed under: its part, but the products of two activations stand apart."""
    part = part_of(path)
    if part != "attn":
        return part
    return "attn_projections" if line.weight_axes() is not None else "attn_scores_values"


@dataclass(frozen=True, slots=True)
class Block:
    """One pre-norm decoder block: x + attn(attn_norm(x)), then x + mlp(mlp_norm(x))."""

    attn_norm: Norm
    attn: Attention
    mlp_norm: Norm
    mlp: FeedForward

    def parts(self) -> Iterator[tuple[str, Part]]:
        """The parts by the names their paths carry, in the order in which they run."""
        yield "attn_norm", self.attn_norm
        yield "attn", self.attn
        yield "attn_add", Residual(self.attn.hidden)
        yield "mlp_norm", self.mlp_norm
        yield "mlp", self.mlp
        yield "mlp_add", Residual(self.mlp.hidden)


@dataclass(frozen=True, slots=True)
class Stack:
    """`count` equal blocks, one after the other."""

    block: Block
    count: Size


@dataclass(frozen=True, slots=True)
class Transformer:
    """A decoder. Blocks of different kinds are different stacks, numbered through."""

    embed: Embedding
    stacks: tuple[Stack, ...]
    final_norm: Norm
    head: Head
    positions: Positions | None = None

    def ledger(self) -> Ledger:
        """Every line of the model."""
        front: list[tuple[str, Part]] = [("embed", self.embed)]
        if self.positions is not None:
            front.append(("pos_embed", self.positions))
        back: list[tuple[str, Part]] = [("final_norm", self.final_norm), ("lm_head", self.head)]
        return Ledger((_group(front), *self._blocks(), _group(back)))

    def _blocks(self) -> Iterator[Group]:
        first = 0
        for stack in self.stacks:
            group = _group([(f"blocks.*.{name}", part) for name, part in stack.block.parts()])
            if isinstance(stack.count, int):
                numbers = range(first, first + stack.count)
                first += stack.count
            else:
                numbers = range(0)  # a symbol or an array: no block has a number of its own
            yield replace(group, count=stack.count, numbers=numbers)

    @property
    def attention(self) -> Attention:
        """The attention of the first block."""
        return self.stacks[0].block.attn

    def mapped(self, change: Callable[[Any], Any], count: Callable[[Size], Size] = lambda count: count) -> Transformer:
        """The same model with every part put through `change`, and every stack's number of blocks through `count`."""

        def block(old: Block) -> Block:
            return Block(**{part.name: change(getattr(old, part.name)) for part in fields(Block)})

        return Transformer(
            embed=change(self.embed),
            stacks=tuple(Stack(block(stack.block), count(stack.count)) for stack in self.stacks),
            final_norm=change(self.final_norm),
            head=change(self.head),
            positions=None if self.positions is None else change(self.positions),
        )

    def with_kv_heads(self, kv_heads: Size | None) -> Transformer:
        """The same model with its query heads sharing `kv_heads` key/value heads; None: each has its own."""

        def shared(part: Part) -> Part:
            if not isinstance(part, Attention):
                return part
            return part.with_kv_heads(part.heads if kv_heads is None else kv_heads)

        return self.mapped(shared)

    def with_positions(self, rows: int) -> Transformer:
        """The same model with a position table of `rows` rows, where it has one."""
        if self.positions is None:
            return self
        return replace(self, positions=replace(self.positions, rows=rows))


def _group(parts: list[tuple[str, Part]]) -> Group:
    axes: dict[str, Size] = {}
    for name, part in parts:
        for axis, value in part.axes().items():
            if axes.setdefault(axis, value) is not value and axes[axis] != value:
                raise ValueError(f"{name}: axis {axis} is {value} here and {axes[axis]} beside it")
    return Group(tuple(chain.from_iterable(part.lines(at) for at, part in parts)), axes)
