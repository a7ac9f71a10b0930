"""The reference model: a decoder put together from the same parts as the ledger, and its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tfacct import architecture
from tfacct.errors import ConfigError
from tfacct.reference.modules import ACTIVATIONS, Add, Attention, FeedForward, Linear, Positions, Step, Tokens, norm
from tfacct.reference.rotary import frequencies


class Block(nn.Module):
    """x + attn(attn_norm(x)), then x + mlp(mlp_norm(x))."""

    def __init__(self, block: architecture.Block, fused: bool) -> None:
        super().__init__()
        self.attn_norm, self.attn, self.attn_add = norm(block.attn_norm), Attention(block.attn, fused), Add()
        self.mlp_norm, self.mlp, self.mlp_add = norm(block.mlp_norm), FeedForward(block.mlp), Add()

    def forward(self, x: Tensor, step: Step, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        attended, k, v = self.attn(self.attn_norm(x), step, past)
        x = self.attn_add(x, attended)
        return self.mlp_add(x, self.mlp(self.mlp_norm(x))), k, v


class Decoder(nn.Module):
    """The whole model. `logits` is `all` or `last`, as in the workload; `fused` attention is for speed, not for
    counting; `recompute` keeps no activations of the blocks and runs them again in the backward pass.
    """

    def __init__(
        self, shape: architecture.Transformer, *, logits: str = "all", fused: bool = False, recompute: bool = False
    ) -> None:
        super().__init__()
        self.logits, self.fused, self.recompute = logits, fused, recompute
        rotary, head_dim = shape.attention.rotary, shape.attention.head_dim
        self.frequencies = None if rotary is None else frequencies(rotary, head_dim)
        self.embed = Tokens(shape.embed)
        self.pos_embed = None if shape.positions is None else Positions(shape.positions)
        self.blocks = nn.ModuleList(Block(stack.block, fused) for stack in shape.stacks for _ in range(stack.count))
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
        step = Step(self._mask(x, old), self._turn(x, old))
        caches: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            before = (past[2 * number], past[2 * number + 1]) if past else None
            if self.recompute:
                x, k, v = checkpoint(
                    block, x, step, before, use_reentrant=False, preserve_rng_state=False, determinism_check="none"
                )
            else:
                x, k, v = block(x, step, before)
            caches += (k, v)
        x = self.final_norm(x)
        return (self.lm_head(x if self.logits == "all" else x[:, -1:]), *caches)

    def _mask(self, x: Tensor, old: int) -> Tensor | None:
        """−∞ where a query would see a later key. One new token sees all; a fused prefill knows by itself."""
        new = x.shape[1]
        if self.fused and (new == 1 or old == 0):
            return None
        return torch.full((new, old + new), float("-inf"), dtype=x.dtype, device=x.device).triu(old + 1)

    def _turn(self, x: Tensor, old: int) -> tuple[Tensor, Tensor] | None:
        """Cosine and sine of every new position's angles, computed in float64 where the frequencies are."""
        if self.frequencies is None:
            return None
        positions = torch.arange(old, old + x.shape[1], device=self.frequencies.device)
        angles = positions[:, None] * self.frequencies[None]
        cos, sin = angles.cos(), angles.sin()
        turn = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
        return turn[0].to(x.device, x.dtype), turn[1].to(x.device, x.dtype)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a forward pass is given: new tokens, and the keys and values of the old ones."""

    tokens: Tensor
    past: tuple[Tensor, ...]


def build(
    shape: architecture.Transformer,
    *,
    device: str = "meta",
    dtype: torch.dtype = torch.float32,
    logits: str = "all",
    fused: bool = False,
    recompute: bool = False,
) -> Decoder:
    """The model on `device`, with random weights. On meta it has every shape and no numbers, and takes no memory."""
    with torch.device(device):
        model = Decoder(shape, logits=logits, fused=fused, recompute=recompute).to(dtype)
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
) -> Inputs:
    """Inputs for `tokens` new tokens of `context`: token 0 throughout, and zeros where there is a past."""
    old = context - tokens
    past = tuple(
        torch.zeros(batch, stack.block.attn.kv_heads, old, stack.block.attn.head_dim, device=device, dtype=dtype)
        for stack in shape.stacks
        for _ in range(stack.count)
        for _ in ("k", "v")
    )
    return Inputs(torch.zeros(batch, tokens, dtype=torch.long, device=device), past if old else ())
