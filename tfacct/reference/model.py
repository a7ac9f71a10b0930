"""The reference model: a decoder put together from the same parts as the ledger, and its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tfacct import architecture
from tfacct.reference.modules import Add, Attention, Embedding, FeedForward, Linear, Positions, norm

ROTARY_BASE = 10_000.0


class Block(nn.Module):
    """x + attn(attn_norm(x)), then x + mlp(mlp_norm(x))."""

    def __init__(self, block: architecture.Block) -> None:
        super().__init__()
        self.attn_norm, self.attn, self.attn_add = norm(block.attn_norm), Attention(block.attn), Add()
        self.mlp_norm, self.mlp, self.mlp_add = norm(block.mlp_norm), FeedForward(block.mlp), Add()

    def forward(
        self, x: Tensor, mask: Tensor, turn: tuple[Tensor, Tensor], past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        attended, k, v = self.attn(self.attn_norm(x), mask, turn, past)
        x = self.attn_add(x, attended)
        return self.mlp_add(x, self.mlp(self.mlp_norm(x))), k, v


class Decoder(nn.Module):
    """The whole model. `logits` is `all` or `last`, as in the workload."""

    def __init__(self, shape: architecture.Transformer, logits: str = "all") -> None:
        super().__init__()
        self.logits = logits
        self.head_dim = shape.attention.head_dim
        self.embed = Embedding(shape.embed.vocab, shape.embed.hidden)
        self.pos_embed = None if shape.positions is None else Positions(shape.positions)
        self.blocks = nn.ModuleList(Block(stack.block) for stack in shape.stacks for _ in range(stack.count))
        self.final_norm = norm(shape.final_norm)
        self.lm_head = Linear(shape.head.hidden, shape.head.vocab, bias=False)
        if shape.head.tied:
            self.lm_head.weight = self.embed.weight

    def forward(self, tokens: Tensor, past: tuple[Tensor, ...] = ()) -> tuple[Tensor, ...]:
        """Logits, then every block's keys and values at the end of the step.

        `past` holds every block's keys and values before it: (k₀, v₀, k₁, v₁, …).
        """
        new = tokens.shape[1]
        old = past[0].shape[2] if past else 0
        positions = torch.arange(old, old + new, device=tokens.device)
        x = self.embed(tokens)
        if self.pos_embed is not None:
            x = self.pos_embed(x, positions)
        mask = torch.full((new, old + new), float("-inf"), dtype=x.dtype, device=x.device).triu(old + 1)
        turn = self._turn(positions, x.dtype)
        caches: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            before = (past[2 * number], past[2 * number + 1]) if past else None
            x, k, v = block(x, mask, turn, before)
            caches += (k, v)
        x = self.final_norm(x)
        return (self.lm_head(x if self.logits == "all" else x[:, -1:]), *caches)

    def _turn(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every position's angles."""
        steps = torch.arange(0, self.head_dim, 2, device=positions.device)[: self.head_dim // 2] / self.head_dim
        angles = positions[:, None] * (ROTARY_BASE**-steps)[None]
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a forward pass is given: new tokens, and the keys and values of the old ones."""

    tokens: Tensor
    past: tuple[Tensor, ...]


def build(shape: architecture.Transformer, *, device: str = "meta", logits: str = "all") -> Decoder:
    """The model on `device`. On meta it has every shape and no numbers, so any size takes no memory."""
    with torch.device(device):
        model = Decoder(shape, logits)
    if device != "meta":
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.02)
    return model


def inputs(shape: architecture.Transformer, *, batch: int, tokens: int, context: int, device: str = "meta") -> Inputs:
    """Inputs for `tokens` new tokens of `context`."""
    old = context - tokens
    past = tuple(
        torch.zeros(batch, stack.block.attn.kv_heads, old, stack.block.attn.head_dim, device=device)
        for stack in shape.stacks
        for _ in range(stack.count)
        for _ in ("k", "v")
    )
    return Inputs(torch.zeros(batch, tokens, dtype=torch.long, device=device), past if old else ())
