"""Phi-3 and Phi-4: Llama's block with q, k and v in one matrix, gate and up in another, and a window in every layer."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tfacct.architecture.parts import Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fraction, Real, even, turned_part
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2024-04"


class Config(LlamaLike):
    """`Phi3Config`, with its class's defaults."""

    intermediate_size: Count = 8192
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 4096
    sliding_window: Window | None = None
    partial_rotary_factor: Fraction = 1.0
    rms_norm_eps: Real = 1e-5

    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 32064,
        "hidden_size": 3072,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    }
    dropouts: ClassVar = {"residual": ("resid_pdrop", 0.0), "attention": ("attention_dropout", 0.0)}
    stems: ClassVar = ("Phi3",)
    uncounted: ClassVar = LlamaLike.uncounted | {"partial_rotary_factor"}
    harmless: ClassVar = frozenset({"embd_layer", "attention_bias", "full_attn_mod", "interpolate_factor"})
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        "blocks.*.attn.q_proj": "model.layers.*.self_attn.qkv_proj",
        "blocks.*.attn.k_proj": "model.layers.*.self_attn.qkv_proj",
        "blocks.*.attn.v_proj": "model.layers.*.self_attn.qkv_proj",
        "blocks.*.mlp.gate_proj": "model.layers.*.mlp.gate_up_proj",
        "blocks.*.mlp.up_proj": "model.layers.*.mlp.gate_up_proj",
    }

    def rotary(self) -> Rotary:
        """Scaled as `longrope` under either of its earlier names."""
        own = LlamaLike.rotary(self)
        if own.scaled not in ("su", "yarn"):
            return own
        return own._replace(scaling={**(own.scaling or {}), "rope_type": "longrope"})

    def architecture(self) -> Transformer:
        """No biases; a part of each head may keep its position to itself."""
        turned = even(
            int(self.head_dim * turned_part(self.partial_rotary_factor, self.rope_parameters)),
            "partial_rotary_factor · head_dim =",
        )
        attention = self.attention(window=self.sliding_window, rope_dim=None if turned == self.head_dim else turned)
        return self.decoder(self.equal_blocks(self.block(attention, self.feed_forward())))
