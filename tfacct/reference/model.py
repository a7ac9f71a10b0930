"""The reference model, put together from the same parts as the ledger, and its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tfacct import architecture, parts
from tfacct.blocks import AnyBlock, Block, MixerBlock, Stack, in_order
from tfacct.errors import ConfigError
from tfacct.reference import blocks
from tfacct.reference.attention import Step
from tfacct.reference.blocks import Ahead, Kept, own_norm, run, through
from tfacct.reference.cross import RelativeBias
from tfacct.reference.modules import ACTIVATIONS, Head, Positions, Segments, Sines, Tokens
from tfacct.reference.rotary import Angles


def _positions(part: parts.Positions | None) -> nn.Module | None:
    if part is None:
        return None
    return Positions(part) if part.stored else Sines(part)


class Encoder(nn.Module):
    """What reads a source."""

    def __init__(self, encoder: architecture.Encoder, *, fused: bool, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.embed = Tokens(encoder.embed)
        self.pos_embed = _positions(encoder.positions)
        self.rel_bias = None if encoder.bias is None else RelativeBias(encoder.bias, both_ways=True)
        self.embed_norm = own_norm(encoder.embed_norm)
        self.blocks = _blocks(encoder.stacks, fused=fused, keep_all=False)
        self.final_norm = own_norm(encoder.final_norm)

    def forward(self, source: Tensor) -> Tensor:
        positions = torch.arange(source.shape[1], device=source.device)
        x = self.embed(source)
        if self.pos_embed is not None:
            x = self.pos_embed(x, positions)
        x = through(self.embed_norm, x)
        step = Step(x, positions, None if self.rel_bias is None else self.rel_bias(positions, positions))
        for block in self.blocks:
            (x,) = run(block, self.recompute, x, step, ())
        return through(self.final_norm, x)


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
        self.embed = Tokens(shape.embed)
        self.pos_embed = _positions(shape.positions)
        self.type_embed = None if shape.segments is None else Segments(shape.segments)
        self.rel_bias = None if shape.bias is None else RelativeBias(shape.bias, both_ways=False)
        self.encoder = None
        if shape.encoder is not None:
            self.encoder = Encoder(shape.encoder, fused=fused, recompute=recompute)
            if shape.encoder.embed.shared:
                self.encoder.embed.weight = self.embed.weight
        self.embed_norm = own_norm(shape.embed_norm)
        self.blocks = _blocks(shape.stacks, fused=fused, keep_all=keep_all)
        self.final_norm = own_norm(shape.final_norm)
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

        `past` holds what every block kept before it, equally many tensors each: (k₀, v₀, k₁, v₁, …), or its two states.
        `positions` of the new tokens: a cache of a window does not tell them. `source`: the tokens that the encoder
        reads, in the first step only.
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
        x = through(self.embed_norm, x)
        read = None if self.encoder is None or source is None else self.encoder(source)
        step = Step(x, positions, self._bias(past, positions))
        each = len(past) // (len(self.blocks) + len(self.mtp))
        kept: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            x, *own = run(block, self.recompute, x, step, past[each * number : each * (number + 1)], read)
            kept += own
        logits = [self.lm_head(through(self.final_norm, x))]
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


def _blocks(stacks: Sequence[Stack], *, fused: bool, keep_all: bool) -> nn.ModuleList:
    """Every block, in the order in which they run; those of a stack share their angles."""
    angles = {id(stack.block): _turns(stack.block) for stack in stacks}
    return nn.ModuleList(
        blocks.build(block, angles[id(block)], fused=fused, keep_all=keep_all) for block in in_order(stacks)
    )


def _turns(block: AnyBlock) -> Angles | None:
    """The angles of a block's attention, where it has any and they turn."""
    return _angles(block.attn) if isinstance(block, Block) else None


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
        unknown = {_activation(stack.block) for stack in shape.every_stack} - set(ACTIVATIONS)
        if unknown:
            raise ConfigError(
                f"the reference model has no activation {unknown.pop()!r}", f"it has {', '.join(ACTIVATIONS)}"
            )
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # Scales near one keep activations finite; everything else is small and centred.
                parameter.normal_(mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.02)
    return model


def _activation(block: AnyBlock) -> str:
    return block.mlp.activation if isinstance(block, Block) else block.mixer.activation


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
    further = [] if shape.ahead is None else [shape.ahead.block] * shape.ahead.count
    for block in (*shape.blocks(), *further):
        there = old
        if block.window is not None:  # the new token is one of those that its window holds
            there = min(old, block.window - 1) if in_window is None else in_window
        past += [torch.zeros(size, device=device, dtype=dtype) for size in _kept_sizes(block, batch, there)]
        if isinstance(block, Block) and block.cross is not None and read is None:
            size = (batch, block.cross.kv_heads, source, block.cross.head_dim)
            past += [torch.zeros(size, device=device, dtype=dtype) for _ in range(2)]
    positions = torch.arange(old, context, device="meta" if device == "meta" else "cpu")
    given = torch.zeros(batch, tokens, dtype=torch.long, device=device)
    return Inputs(given, tuple(past) if old else (), positions, read)


def _kept_sizes(block: AnyBlock, batch: int, tokens: int) -> tuple[tuple[int, ...], ...]:
    """The sizes of what a block keeps of so many tokens."""
    if isinstance(block, MixerBlock):
        mixer = block.mixer
        return (batch, mixer.inner, mixer.kernel), (batch, mixer.inner, mixer.state)
    part = block.attn
    if isinstance(part, parts.Attention):
        one = (batch, part.kv_heads, tokens, part.head_dim)
        return (one, one) if part.causal else ()
    if part.form == "unpacked":
        return (batch, part.heads, tokens, part.query), (batch, part.heads, tokens, part.value)
    return (batch, 1, tokens, part.kv_rank), (batch, 1, tokens, part.turned)
