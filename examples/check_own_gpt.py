"""A GPT-2 written by hand, checked against its config; then four mistakes, one after the other, and where each is seen.

The module is never run with numbers: it is built on meta, so a model of any size is checked in a second or two. Needs
torch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import tfacct

GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50_257, "n_positions": 1024}


class Attention(nn.Module):
    """Queries, keys and values in one product, then torch's own attention."""

    def __init__(self, width: int, heads: int, head: int) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * heads * head), nn.Linear(heads * head, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention and an MLP, each after a norm."""

    def __init__(self, width: int, heads: int, head: int, wide: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, heads, head)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(approximate="tanh"), nn.Linear(wide, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class GPT(nn.Module):
    """Tables of tokens and positions, blocks, a norm, and a head that is the table of tokens."""

    def __init__(self, *, tied: bool = True, head: int = 64, wide: int = 3_072) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50_257, 768), nn.Embedding(1_024, 768)
        self.blocks = nn.ModuleList([Block(768, 12, head, wide) for _ in range(12)])
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 50_257, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x))
        return out


def with_a_bias_too_many() -> nn.Module:
    """Build one with a bias of the head, which GPT-2 has not."""
    model = GPT()
    bias = nn.Parameter(torch.zeros(50_257))
    model.head.register_parameter("bias", bias)
    return model


right = tfacct.check(GPT, GPT2, tokens=64)
assert right.agrees
print(right.answer)

mistakes: dict[str, Callable[[], nn.Module]] = {
    "the head is not tied": lambda: GPT(tied=False),
    "a wrong head size": lambda: GPT(head=128),
    "a bias too many": with_a_bias_too_many,
    "an MLP of another width": lambda: GPT(wide=2_048),
}
for name, build in mistakes.items():
    report = tfacct.check(build, GPT2, tokens=64)
    assert not report.agrees
    print(f"\n{name}:\n  {report.first_difference}")
