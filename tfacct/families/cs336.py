"""The Transformer LM of Stanford's course CS336: Llama's block without grouped queries, in the course's field names.

RMSNorm, SwiGLU with three matrices, rotary positions, no biases, an untied head. It has no transformers class, so
no field that counts has a default.
"""

from typing import ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, even, share

RELEASED = "2024-04"


class Config(FamilyConfig):
    """The course's constructor arguments."""

    vocab_size: Count
    context_length: Count
    num_layers: Layers
    d_model: Count
    num_heads: Count
    d_ff: Count
    rope_theta: Real = 10_000.0

    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"rope_theta"})

    @property
    def context(self) -> int:
        """context_length."""
        return self.context_length

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks; heads of d_model / num_heads."""
        norm = Norm(hidden=self.d_model, kind="rms")
        attn = Attention(
            hidden=self.d_model,
            kv_heads=self.num_heads,
            group=1,
            head_dim=even(share(self.d_model, self.num_heads, "d_model by num_heads")),
            rotary=Rotary(self.rope_theta),
        )
        mlp = FeedForward(hidden=self.d_model, width=self.d_ff, gated=True, activation="silu")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=self.d_model),
            stacks=(Stack(Block.of(attn, mlp, norm=norm), self.num_layers),),
            final_norm=norm,
            head=Head(hidden=self.d_model, vocab=self.vocab_size),
        )
