"""The reference model, put together from the same parts as the ledger, and its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tfacct import architecture, parts
from tfacct.errors import ConfigError
from tfacct.reference.attention import Attention, Cache, LatentAttention, Step
from tfacct.reference.cross import CrossAttention, RelativeBias
from tfacct.reference.experts import Experts
from tfacct.reference.modules import ACTIVATIONS, Add, FeedForward, Head, Joining, Positions, Segments, Tokens, norm
from tfacct.reference.rotary import Angles

Kept: TypeAlias = tuple[Tensor, ...]
"""What blocks keep between steps, block by block."""


class Block(nn.Module):
    """Attention and a feed-forward network, each added to the stream, in the order that the block has; between them
    attention to a source, where there is one.

    `states` names what it keeps, in the order in which it gives it.
    """

    def __init__(self, block: architecture.Block, angles: Angles | None, *, fused: bool, keep_all: bool) -> None:
        super().__init__()
        self.order = block.order
        self.attn_norm, self.attn_post_norm = _norm(block.attn_norm), _norm(block.attn_post_norm)
        self.mlp_norm, self.mlp_post_norm = _norm(block.mlp_norm), _norm(block.mlp_post_norm)
        if isinstance(block.attn, parts.LatentAttention):
            assert angles is not None
            self.attn: nn.Module = LatentAttention(block.attn, angles)
        else:
            self.attn = Attention(block.attn, angles, fused=fused, keep_all=keep_all)
        self.mlp = Experts(block.mlp) if isinstance(block.mlp, parts.Experts) else FeedForward(block.mlp)
        self.attn_add, self.mlp_add = Add(), Add()
        self.cross, self.cross_norm, self.cross_add = None, _norm(block.cross_norm), None
        self.states = [f"attn.{name}" for name in self.attn.caches]
        if block.cross is not None:
            self.cross, self.cross_add = CrossAttention(block.cross, fused=fused), Add()
            self.states += [f"cross.{name}" for name in self.cross.caches]

    def forward(self, x: Tensor, step: Step, past: Kept, source: Tensor | None = None) -> tuple[Tensor, ...]:
        own, crossing = _cache(past[:2]), _cache(past[2:])
        if self.order == "parallel":
            return self._parallel(x, step, own)
        post = self.order == "post"
        attended, *kept = self.attn(x if post else _through(self.attn_norm, x), step, own)
        x = self.attn_add(x, _through(self.attn_post_norm, attended))
        x = _through(self.attn_norm, x) if post else x
        if self.cross is not None and self.cross_add is not None:
            crossed, *further = self.cross(x if post else _through(self.cross_norm, x), source, crossing)
            x = self.cross_add(x, crossed)
            x = _through(self.cross_norm, x) if post else x
            kept += further
        widened = self.mlp(x if post else _through(self.mlp_norm, x))
        x = self.mlp_add(x, _through(self.mlp_post_norm, widened))
        return _through(self.mlp_norm, x) if post else x, *kept

    def _parallel(self, x: Tensor, step: Step, past: Cache | None) -> tuple[Tensor, ...]:
        normed = _through(self.attn_norm, x)
        attended, *kept = self.attn(normed, step, past)
        widened = self.mlp(normed if self.mlp_norm is None else self.mlp_norm(x))
        return self.mlp_add(self.attn_add(x, attended), widened), *kept


def _cache(past: Kept) -> Cache | None:
    return (past[0], past[1]) if past else None


def _norm(part: parts.Norm | None) -> nn.Module | None:
    return None if part is None else norm(part)


def _through(module: nn.Module | None, x: Tensor) -> Tensor:
    return x if module is None else module(x)


class Ahead(Block):
    """A layer that foresees one token more: the stream joined with the next token's row, a block, the model's head."""

    def __init__(self, ahead: architecture.Ahead, head: parts.Head, angles: Angles | None, *, last: bool) -> None:
        super().__init__(ahead.block, angles, fused=False, keep_all=False)
        self.join, self.head_norm, self.lm_head = Joining(ahead.joining), norm(ahead.norm), Head(head, last=last)

    def logits(self, x: Tensor, row: Tensor, step: Step, past: Kept) -> tuple[Tensor, ...]:
        """The stream behind this layer, the logits of one token more, and what is kept."""
        x, *kept = self(self.join(x, row), step, past)
        return x, self.lm_head(self.head_norm(x)), *kept


class Encoder(nn.Module):
    """What reads a source."""

    def __init__(self, encoder: architecture.Encoder, *, fused: bool, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.embed = Tokens(encoder.embed)
        self.pos_embed = None if encoder.positions is None else Positions(encoder.positions)
        self.rel_bias = None if encoder.bias is None else RelativeBias(encoder.bias, both_ways=True)
        self.embed_norm = _norm(encoder.embed_norm)
        numbers = architecture.numbered(encoder.stacks)
        self.blocks = nn.ModuleList(
            Block(block, None, fused=fused, keep_all=False) for _, block in _placed(encoder.stacks, numbers)
        )
        self.final_norm = _norm(encoder.final_norm)

    def forward(self, source: Tensor) -> Tensor:
        positions = torch.arange(source.shape[1], device=source.device)
        x = self.embed(source)
        if self.pos_embed is not None:
            x = self.pos_embed(x, positions)
        x = _through(self.embed_norm, x)
        step = Step(x, positions, None if self.rel_bias is None else self.rel_bias(positions, positions))
        for block in self.blocks:
            (x,) = _run(block, self.recompute, x, step, ())
        return _through(self.final_norm, x)


def _run(block: nn.Module, recompute: bool, *given: object) -> tuple[Tensor, ...]:
    """A block's result; with `recompute` it keeps no activations, and runs again in the backward pass."""
    if not recompute:
        return block(*given)  # type: ignore[no-any-return]
    return checkpoint(  # type: ignore[no-any-return]
        block, *given, use_reentrant=False, preserve_rng_state=False, determinism_check="none"
    )


class Decoder(nn.Module):
    """The whole model. `logits` is `all` or `last`, as in the workload; `fused` attention is for speed, not for
    counting; `recompute` keeps no activations of the blocks and runs them again in the backward pass; `keep_all` keeps
    keys that have left their window.
    """

    def __init__(
        self,
        shape: architecture.Transformer,
        *,
        logits: str = "all",
        fused: bool = False,
        recompute: bool = False,
        keep_all: bool = False,
    ) -> None:
        super().__init__()
        self.recompute = recompute
        self.windowed = any(stack.block.window is not None for stack in shape.stacks)
        angles = {id(stack.block): _angles(stack.block.attn) for stack in shape.stacks}
        self.embed = Tokens(shape.embed)
        self.pos_embed = None if shape.positions is None else Positions(shape.positions)
        self.type_embed = None if shape.segments is None else Segments(shape.segments)
        self.rel_bias = None if shape.bias is None else RelativeBias(shape.bias, both_ways=False)
        self.encoder = None
        if shape.encoder is not None:
            self.encoder = Encoder(shape.encoder, fused=fused, recompute=recompute)
            if shape.encoder.embed.shared:
                self.encoder.embed.weight = self.embed.weight
        self.embed_norm = _norm(shape.embed_norm)
        self.blocks = nn.ModuleList(
            Block(block, angles[id(block)], fused=fused, keep_all=keep_all)
            for _, block in _placed(shape.stacks, shape.numbers())
        )
        self.final_norm = _norm(shape.final_norm)
        self.lm_head = Head(shape.head, last=logits == "last")
        if shape.head.tied:
            self.lm_head.weight = self.embed.weight
        self.mtp = nn.ModuleList()
        if shape.ahead is not None:
            turned = _angles(shape.ahead.block.attn)
            for _ in range(shape.ahead.count):
                ahead = Ahead(shape.ahead, shape.head, turned, last=logits == "last")
                ahead.lm_head.weight = self.lm_head.weight
                self.mtp.append(ahead)

    def forward(
        self, tokens: Tensor, past: Kept = (), positions: Tensor | None = None, source: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Logits, then what every block keeps at the end of the step. Logits of tokens further ahead stand behind the
        others, along the tokens.

        `past` holds what every block kept before it, equally many tensors each: (k₀, v₀, k₁, v₁, …). `positions` of
        the new tokens: a cache of a window does not tell them. `source`: the tokens that the encoder reads, in the
        first step only.
        """
        if positions is None:
            if past and self.windowed:
                raise ValueError("a model with windows needs the positions of its new tokens")
            old = past[0].shape[2] if past else 0
            positions = torch.arange(old, old + tokens.shape[1], device=tokens.device)
        x = self.embed(tokens)
        if self.pos_embed is not None:
            x = self.pos_embed(x, positions.to(tokens.device))
        if self.type_embed is not None:
            x = self.type_embed(x, positions)
        x = _through(self.embed_norm, x)
        read = None if self.encoder is None or source is None else self.encoder(source)
        step = Step(x, positions, self._bias(past, positions))
        each = len(past) // (len(self.blocks) + len(self.mtp))
        kept: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            x, *own = _run(block, self.recompute, x, step, past[each * number : each * (number + 1)], read)
            kept += own
        logits = [self.lm_head(_through(self.final_norm, x))]
        for number, ahead in enumerate(self.mtp, start=len(self.blocks)):
            assert isinstance(ahead, Ahead)
            before = past[each * number : each * (number + 1)]
            x, further, *own = ahead.logits(x, self.embed(tokens), step, before)
            logits.append(further)
            kept += own
        return (torch.cat(logits, dim=1) if self.mtp else logits[0], *kept)

    def _bias(self, past: Kept, positions: Tensor) -> Tensor | None:
        """The scores of the distances from the new tokens to all: the old ones stand in front of them."""
        if self.rel_bias is None:
            return None
        old = past[0].shape[2] if past else 0
        keys = torch.arange(old + positions.shape[0], device=positions.device)
        bias: Tensor = self.rel_bias(positions, keys)
        return bias


def _placed(
    stacks: Sequence[architecture.Stack], numbers: Sequence[Sequence[int]]
) -> Iterator[tuple[int, architecture.Block]]:
    """Every block by its number, in the order in which they run."""
    placed = [(number, stack.block) for stack, own in zip(stacks, numbers, strict=True) for number in own]
    yield from sorted(placed, key=lambda entry: entry[0])


def _angles(part: parts.Attention | parts.LatentAttention) -> Angles | None:
    if part.rotary is None:
        return None
    if part.turned is not None:
        return Angles(part.rotary, part.turned)
    assert isinstance(part, parts.Attention)
    return Angles(part.rotary, part.head_dim)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a forward pass is given: new tokens, what every block kept of the old ones, the new tokens' positions, and a
    source where one is read."""

    tokens: Tensor
    past: Kept
    positions: Tensor
    source: Tensor | None = None

    @property
    def all(self) -> tuple[Tensor | Kept, ...]:
        """As the model takes them."""
        given = (self.tokens, self.past, self.positions)
        return given if self.source is None else (*given, self.source)


def build(
    shape: architecture.Transformer,
    *,
    device: str = "meta",
    dtype: torch.dtype = torch.float32,
    logits: str = "all",
    fused: bool = False,
    recompute: bool = False,
    keep_all: bool = False,
) -> Decoder:
    """The model on `device`, with random weights. On meta it has every shape and no numbers, and takes no memory."""
    with torch.device(device):
        model = Decoder(shape, logits=logits, fused=fused, recompute=recompute, keep_all=keep_all).to(dtype)
    if device != "meta":
        unknown = {stack.block.mlp.activation for stack in shape.every_stack} - set(ACTIVATIONS)
        if unknown:
            raise ConfigError(
                f"the reference model has no activation {unknown.pop()!r}", f"it has {', '.join(ACTIVATIONS)}"
            )
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # Scales near one keep activations finite; everything else is small and centred.
                parameter.normal_(mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.02)
    return model


def inputs(
    shape: architecture.Transformer,
    *,
    batch: int,
    tokens: int,
    context: int,
    device: str = "meta",
    dtype: torch.dtype = torch.float32,
    in_window: int | None = None,
    source: int = 0,
    new_source: int = 0,
) -> Inputs:
    """Inputs for `tokens` new tokens of `context`: token 0 throughout, and zeros where there is a past.

    `in_window`: the old tokens that a windowed block still has, where they are not to be reckoned. Of `source` tokens
    `new_source` are read now: all, or none.
    """
    old = context - tokens
    past: list[Tensor] = []
    read = torch.zeros(batch, new_source, dtype=torch.long, device=device) if new_source else None
    blocks = [block for _, block in _placed(shape.stacks, shape.numbers())]
    if shape.ahead is not None:
        blocks += [shape.ahead.block] * shape.ahead.count
    for block in blocks:
        there = old
        if block.window is not None:  # the new token is one of those that its window holds
            there = min(old, block.window - 1) if in_window is None else in_window
        sizes = _kept_sizes(block.attn, batch, there)
        if block.cross is not None and read is None:
            sizes += 2 * ((batch, block.cross.kv_heads, source, block.cross.head_dim),)
        past += [torch.zeros(size, device=device, dtype=dtype) for size in sizes]
    positions = torch.arange(old, context, device="meta" if device == "meta" else "cpu")
    given = torch.zeros(batch, tokens, dtype=torch.long, device=device)
    return Inputs(given, tuple(past) if old else (), positions, read)


def _kept_sizes(
    part: parts.Attention | parts.LatentAttention, batch: int, tokens: int
) -> tuple[tuple[int, int, int, int], ...]:
    """The sizes of what a block keeps of so many tokens."""
    if isinstance(part, parts.Attention):
        one = (batch, part.kv_heads, tokens, part.head_dim)
        return (one, one) if part.causal else ()
    if part.form == "unpacked":
        return (batch, part.heads, tokens, part.query), (batch, part.heads, tokens, part.value)
    return (batch, 1, tokens, part.kv_rank), (batch, 1, tokens, part.turned)
