"""Qwen3.5 with experts: its DeltaNet and attention; experts in every layer, and one gated shared network that every
token passes through."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers
from tfacct.families._endings import DECODER
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, SHARED_PATHS, beside_gated
from tfacct.families._qwen_delta import TENSORS, QwenDelta
from tfacct.families.qwen3_5_text import Config as Qwen3_5

RELEASED = "2026-02"


class Config(QwenDelta):
    """`Qwen3_5MoeTextConfig`, with its class's defaults, sizes too. It reads no intermediate_size."""

    vocab_size: Count = 248320
    hidden_size: Count = 2048
    intermediate_size: Count | None = None  # type: ignore[assignment]
    num_hidden_layers: Layers = 40
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 2
    moe_intermediate_size: Count = 512
    shared_expert_intermediate_size: Count = 512
    num_experts: Count = 256
    num_experts_per_tok: Count = 8

    stems: ClassVar = ("Qwen3_5Moe", "Qwen3_5MoeText")
    uncounted: ClassVar = QwenDelta.uncounted | {"intermediate_size"}
    aliases: ClassVar = {"num_local_experts": "num_experts"}
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {**Qwen3_5.hf_paths, **ROUTED_PATHS, **SHARED_PATHS}
    hf_tensors: ClassVar = {**ROUTED_TENSORS, **TENSORS}

    def architecture(self) -> Transformer:
        """Experts beside a shared network, in every layer."""
        return self.of_two_kinds(self.kinds(), [beside_gated(self)] * self.num_hidden_layers)
