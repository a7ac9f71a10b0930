"""The reference model: a decoder put together from the same parts as the ledger, and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tfacct import architecture, parts
from tfacct.errors import ConfigError
from tfacct.reference.attention import Attention, Cache, LatentAttention, Step
from tfacct.reference.experts import Experts
from tfacct.reference.modules import ACTIVATIONS, Add, FeedForward, Head, Joining, Positions, Tokens, norm
from tfacct.reference.rotary import Angles


class Block(nn.Module):
    """Attention and a feed-forward network, each added to the stream, in the order that the block has."""

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

    def forward(self, x: Tensor, step: Step, past: Cache | None) -> tuple[Tensor, Tensor, Tensor]:
        run = {"pre": self._pre, "post": self._post, "parallel": self._parallel}[self.order]
        return run(x, step, past)

    def _pre(self, x: Tensor, step: Step, past: Cache | None) -> tuple[Tensor, Tensor, Tensor]:
        attended, *kept = self.attn(_through(self.attn_norm, x), step, past)
        x = self.attn_add(x, _through(self.attn_post_norm, attended))
        widened = self.mlp(_through(self.mlp_norm, x))
        return self.mlp_add(x, _through(self.mlp_post_norm, widened)), *kept

    def _post(self, x: Tensor, step: Step, past: Cache | None) -> tuple[Tensor, Tensor, Tensor]:
        attended, *kept = self.attn(x, step, past)
        x = _through(self.attn_norm, self.attn_add(x, attended))
        return _through(self.mlp_norm, self.mlp_add(x, self.mlp(x))), *kept

    def _parallel(self, x: Tensor, step: Step, past: Cache | None) -> tuple[Tensor, Tensor, Tensor]:
        normed = _through(self.attn_norm, x)
        attended, *kept = self.attn(normed, step, past)
        widened = self.mlp(normed if self.mlp_norm is None else self.mlp_norm(x))
        return self.mlp_add(self.attn_add(x, attended), widened), *kept


def _norm(part: parts.Norm | None) -> nn.Module | None:
    return None if part is None else norm(part)


def _through(module: nn.Module | None, x: Tensor) -> Tensor:
    return x if module is None else module(x)


class Ahead(Block):
    """A layer that foresees one token more: the stream joined with the next token's row, a block, the model's head."""

    def __init__(self, ahead: architecture.Ahead, head: parts.Head, angles: Angles | None, *, last: bool) -> None:
        super().__init__(ahead.block, angles, fused=False, keep_all=False)
        self.join, self.head_norm, self.lm_head = Joining(ahead.joining), norm(ahead.norm), Head(head, last=last)

    def logits(self, x: Tensor, row: Tensor, step: Step, past: Cache | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The stream behind this layer, the logits of one token more, and what is kept."""
        x, *kept = self(self.join(x, row), step, past)
        return x, self.lm_head(self.head_norm(x)), *kept


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
        self.rerun: Callable[[], AbstractContextManager[object]] = nullcontext  # around each block that is run again
        self.windowed = any(stack.block.window is not None for stack in shape.stacks)
        angles = [_angles(stack.block.attn) for stack in shape.stacks]
        self.embed = Tokens(shape.embed)
        self.pos_embed = None if shape.positions is None else Positions(shape.positions)
        self.embed_norm = _norm(shape.embed_norm)
        self.blocks = nn.ModuleList(
            Block(block, angles[stack], fused=fused, keep_all=keep_all) for stack, block in _placed(shape)
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
        self, tokens: Tensor, past: tuple[Tensor, ...] = (), positions: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Logits, then what every block keeps at the end of the step. Logits of tokens further ahead stand behind the
        others, along the tokens.

        `past` holds what every block kept before it, two tensors each: (k₀, v₀, k₁, v₁, …). `positions` of the new
        tokens: a cache of a window does not tell them.
        """
        if positions is None:
            if past and self.windowed:
                raise ValueError("a model with windows needs the positions of its new tokens")
            old = past[0].shape[2] if past else 0
            positions = torch.arange(old, old + tokens.shape[1], device=tokens.device)
        x = self.embed(tokens)
        if self.pos_embed is not None:
            x = self.pos_embed(x, positions.to(tokens.device))
        x = _through(self.embed_norm, x)
        step = Step(x, positions)
        kept: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            before = _of_block(past, number)
            if self.recompute and torch.is_grad_enabled():
                x, *own = checkpoint(
                    block,
                    x,
                    step,
                    before,
                    use_reentrant=False,
                    preserve_rng_state=False,
                    determinism_check="none",
                    context_fn=lambda: (nullcontext(), self.rerun()),
                )
            else:
                x, *own = block(x, step, before)
            kept += own
        logits = [self.lm_head(_through(self.final_norm, x))]
        for number, ahead in enumerate(self.mtp, start=len(self.blocks)):
            assert isinstance(ahead, Ahead)
            x, further, *own = ahead.logits(x, self.embed(tokens), step, _of_block(past, number))
            logits.append(further)
            kept += own
        return (torch.cat(logits, dim=1) if self.mtp else logits[0], *kept)


def _of_block(past: tuple[Tensor, ...], number: int) -> Cache | None:
    return (past[2 * number], past[2 * number + 1]) if past else None


def _placed(shape: architecture.Transformer) -> Iterator[tuple[int, architecture.Block]]:
    """Every block in the order in which they run, and the number of the stack it belongs to."""
    placed = [
        (number, index, stack.block)
        for index, (stack, numbers) in enumerate(zip(shape.stacks, shape.numbers(), strict=True))
        for number in numbers
    ]
    yield from ((index, block) for _, index, block in sorted(placed, key=lambda entry: entry[0]))


def _angles(part: parts.Attention | parts.LatentAttention) -> Angles | None:
    if part.rotary is None:
        return None
    if part.turned is not None:
        return Angles(part.rotary, part.turned)
    assert isinstance(part, parts.Attention)
    return Angles(part.rotary, part.head_dim)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a forward pass is given: new tokens, what every block kept of the old ones, the new tokens' positions."""

    tokens: Tensor
    past: tuple[Tensor, ...]
    positions: Tensor

    @property
    def all(self) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """As the model takes them."""
        return self.tokens, self.past, self.positions


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
        unknown = {stack.block.mlp.activation for stack in shape.stacks} - set(ACTIVATIONS)
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
) -> Inputs:
    """Inputs for `tokens` new tokens of `context`: token 0 throughout, and zeros where there is a past.

    `in_window`: the old tokens that a windowed block still has, where they are not to be reckoned.
    """
    old = context - tokens
    past: list[Tensor] = []
    blocks = [block for _, block in _placed(shape)]
    if shape.ahead is not None:
        blocks += [shape.ahead.block] * shape.ahead.count
    for block in blocks:
        there = old
        if block.window is not None:  # the new token is one of those that its window holds
            there = min(old, block.window - 1) if in_window is None else in_window
        past += [torch.zeros(size, device=device, dtype=dtype) for size in _kept_sizes(block.attn, batch, there)]
    positions = torch.arange(old, context, device="meta" if device == "meta" else "cpu")
    given = torch.zeros(batch, tokens, dtype=torch.long, device=device)
    return Inputs(given, tuple(past) if old else (), positions)


def _kept_sizes(
    part: parts.Attention | parts.LatentAttention, batch: int, tokens: int
) -> tuple[tuple[int, int, int, int], tuple[int, int, int, int]]:
    """The sizes of what a block keeps of so many tokens."""
    if isinstance(part, parts.Attention):
        one = (batch, part.kv_heads, tokens, part.head_dim)
        return one, one
    if part.form == "unpacked":
        return (batch, part.heads, tokens, part.query), (batch, part.heads, tokens, part.value)
    return (batch, 1, tokens, part.kv_rank), (batch, 1, tokens, part.turned)
