"""The reference model's blocks: what is added to the stream, in the order in which it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tfacct import blocks, parts
from tfacct.reference.attention import Attention, Cache, LatentAttention, Step
from tfacct.reference.cross import CrossAttention
from tfacct.reference.experts import Experts
from tfacct.reference.mixer import Mixer
from tfacct.reference.modules import Add, FeedForward, Head, Joining, norm
from tfacct.reference.rotary import Angles

Kept: TypeAlias = tuple[Tensor, ...]
"""What blocks keep between steps, block by block."""


class AnyBlock(nn.Module):
    """What every block has: `states` names what it keeps, in the order in which it gives it. Where it is run again,
    `rerun` stands around it: whoever counts may look on."""

    states: Sequence[str] = ()
    rerun: Callable[[], AbstractContextManager[object]] = nullcontext


class Block(AnyBlock):
    """Attention and a feed-forward network, each added to the stream, in the order that the block has; between them
    attention to a source, where there is one."""

    def __init__(self, block: blocks.Block, angles: Angles | None, *, fused: bool, keep_all: bool) -> None:
        super().__init__()
        self.order = block.order
        norms = (block.attn_norm, block.cross_norm, block.mlp_norm)
        shared = next((part for part in norms if part is not None and part.shared), None)
        self.shared_norm = own_norm(shared)  # it stands first, so that what is shared goes by its name
        self.attn_norm, self.attn_post_norm = own_norm(block.attn_norm), own_norm(block.attn_post_norm)
        self.mlp_norm, self.mlp_post_norm = own_norm(block.mlp_norm), own_norm(block.mlp_post_norm)
        if isinstance(block.attn, parts.LatentAttention):
            assert angles is not None
            self.attn: nn.Module = LatentAttention(block.attn, angles)
        else:
            self.attn = Attention(block.attn, angles, fused=fused, keep_all=keep_all)
        self.mlp = Experts(block.mlp) if isinstance(block.mlp, parts.Experts) else FeedForward(block.mlp)
        self.idle = isinstance(block.mlp, parts.FeedForward) and not block.mlp.called
        self.attn_add, self.mlp_add = Add(), Add()
        self.cross, self.cross_norm, self.cross_add = None, own_norm(block.cross_norm), None
        self.states = [f"attn.{name}" for name in self.attn.caches]
        if block.cross is not None:
            self.cross, self.cross_add = CrossAttention(block.cross, fused=fused), Add()
            self.states += [f"cross.{name}" for name in self.cross.caches]
        for own, part in zip((self.attn_norm, self.cross_norm, self.mlp_norm), norms, strict=True):
            if part is not None and part.shared:
                _share(self.shared_norm, own)

    def forward(self, x: Tensor, step: Step, past: Kept, source: Tensor | None = None) -> tuple[Tensor, ...]:
        own, crossing = _cache(past[:2]), _cache(past[2:])
        if self.order == "parallel":
            return self._parallel(x, step, own)
        post = self.order == "post"
        attended, *kept = self.attn(x if post else through(self.attn_norm, x), step, own)
        x = self.attn_add(x, through(self.attn_post_norm, attended))
        x = through(self.attn_norm, x) if post else x
        if self.cross is not None and self.cross_add is not None:
            crossed, *further = self.cross(x if post else through(self.cross_norm, x), source, crossing)
            x = self.cross_add(x, crossed)
            x = through(self.cross_norm, x) if post else x
            kept += further
        if self.idle:
            return x, *kept
        widened = self.mlp(x if post else through(self.mlp_norm, x))
        x = self.mlp_add(x, through(self.mlp_post_norm, widened))
        return through(self.mlp_norm, x) if post else x, *kept

    def _parallel(self, x: Tensor, step: Step, past: Cache | None) -> tuple[Tensor, ...]:
        normed = through(self.attn_norm, x)
        attended, *kept = self.attn(normed, step, past)
        if self.idle:
            return self.attn_add(x, attended), *kept
        widened = self.mlp(normed if self.mlp_norm is None else self.mlp_norm(x))
        return self.mlp_add(self.attn_add(x, attended), widened), *kept


class MixerBlock(AnyBlock):
    """A mixer added to the stream."""

    states = ("mixer.conv_state", "mixer.scan_state")

    def __init__(self, block: blocks.MixerBlock) -> None:
        super().__init__()
        self.mixer_norm, self.mixer, self.mixer_add = norm(block.mixer_norm), Mixer(block.mixer), Add()

    def forward(self, x: Tensor, _step: Step, past: Kept, _source: Tensor | None = None) -> tuple[Tensor, ...]:
        mixed, *kept = self.mixer(self.mixer_norm(x), _cache(past))
        return self.mixer_add(x, mixed), *kept


def build(block: blocks.AnyBlock, angles: Angles | None, *, fused: bool, keep_all: bool) -> nn.Module:
    if isinstance(block, blocks.MixerBlock):
        return MixerBlock(block)
    return Block(block, angles, fused=fused, keep_all=keep_all)


def _cache(past: Kept) -> Cache | None:
    return (past[0], past[1]) if past else None


def own_norm(part: parts.Norm | None) -> nn.Module | None:
    return None if part is None else norm(part)


def _share(owner: nn.Module | None, other: nn.Module | None) -> None:
    """Give a norm the scale and shift of another."""
    assert owner is not None and other is not None
    for name, parameter in owner.named_parameters():
        setattr(other, name, parameter)


def through(module: nn.Module | None, x: Tensor) -> Tensor:
    return x if module is None else module(x)


class Ahead(Block):
    """A layer that foresees one token more: the stream joined with the next token's row, a block, the model's head."""

    def __init__(self, ahead: blocks.Ahead, head: parts.Head, angles: Angles | None, *, last: bool) -> None:
        super().__init__(ahead.block, angles, fused=False, keep_all=False)
        self.join, self.head_norm, self.lm_head = Joining(ahead.joining), norm(ahead.norm), Head(head, last=last)

    def logits(self, x: Tensor, row: Tensor, step: Step, past: Kept) -> tuple[Tensor, ...]:
        """The stream behind this layer, the logits of one token more, and what is kept."""
        x, *kept = self(self.join(x, row), step, past)
        return x, self.lm_head(self.head_norm(x)), *kept


def run(block: nn.Module, recompute: bool, *given: object) -> tuple[Tensor, ...]:
    """A block's result; with `recompute` it keeps no activations, and runs again in the backward pass."""
    assert isinstance(block, AnyBlock)
    if not recompute or not torch.is_grad_enabled():
        return block(*given)  # type: ignore[no-any-return]
    return checkpoint(  # type: ignore[no-any-return]
        block,
        *given,
        use_reentrant=False,
        preserve_rng_state=False,
        determinism_check="none",
        context_fn=lambda: (nullcontext(), block.rerun()),
    )
