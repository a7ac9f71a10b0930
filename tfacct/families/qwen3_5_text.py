"""Qwen3.5: gated DeltaNet in three layers of four, attention with an output gate in the fourth; dense networks."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers
from tfacct.families._delta_like import delta_paths
from tfacct.families._endings import CLASSIFYING
from tfacct.families._qwen_delta import BEHIND, TENSORS, QwenDelta

RELEASED = "2026-02"

SPLIT = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "in_proj_qkv"),
    "gate_proj": "in_proj_z",
    "rate_proj": "in_proj_b",
    "decay_proj": "in_proj_a",
}
"""Qwen3.5's projections of DeltaNet, by our name."""


class Config(QwenDelta):
    """`Qwen3_5TextConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 248320
    hidden_size: Count = 4096
    intermediate_size: Count = 12288
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 4

    stems: ClassVar = ("Qwen3_5", "Qwen3_5Text")
    heads: ClassVar = CLASSIFYING
    hf_paths: ClassVar = {**QwenDelta.hf_paths, **delta_paths("linear_attn", **SPLIT, **BEHIND)}
    hf_tensors: ClassVar = TENSORS

    def architecture(self) -> Transformer:
        """A dense network in every layer."""
        return self.of_two_kinds(self.kinds(), [self.feed_forward()] * self.num_hidden_layers)
