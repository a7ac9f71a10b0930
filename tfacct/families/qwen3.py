"""Qwen3: Llama's block with a norm over each query and each key head, and heads of a size of their own."""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture import Transformer
from tfacct.families._base import Count, Switch
from tfacct.families._qwen_like import QwenLike


class Config(QwenLike):
    """`Qwen3Config`, with its class's defaults. An absent head_dim is 128, whatever the hidden size."""

    head_dim: Count = 128
    attention_bias: Switch = False

    hf_paths: ClassVar = {
        **QwenLike.hf_paths,
        "blocks.*.attn.q_norm": "model.layers.*.self_attn.q_norm",
        "blocks.*.attn.k_norm": "model.layers.*.self_attn.k_norm",
    }

    def architecture(self) -> Transformer:
        """Norms of queries and keys; biases on all four projections where attention_bias says so."""
        biased = self.attention_bias
        return self.with_biases(qkv=biased, out=biased, mlp=False, qk_norm_eps=self.rms_norm_eps)
