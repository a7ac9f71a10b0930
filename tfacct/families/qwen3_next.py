"""Qwen3-Next: gated DeltaNet in three layers of four, attention with an output gate in the fourth; experts, and one
gated shared network that every token passes through."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, UpTo
from tfacct.families._delta_like import delta_paths
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, SHARED_PATHS, beside_gated, with_experts
from tfacct.families._qwen_delta import BEHIND, TENSORS, QwenDelta

RELEASED = "2025-09"


class Config(QwenDelta):
    """`Qwen3NextConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 151936
    hidden_size: Count = 2048
    intermediate_size: Count = 5632
    num_hidden_layers: Layers = 48
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 2
    moe_intermediate_size: Count = 512
    shared_expert_intermediate_size: Count = 512
    num_experts: Count = 512
    num_experts_per_tok: Count = 10
    decoder_sparse_step: Count = 1
    mlp_only_layers: list[UpTo] | None = None

    stems: ClassVar = ("Qwen3Next",)
    aliases: ClassVar[Mapping[str, str]] = {"num_local_experts": "num_experts"}
    hf_paths: ClassVar = {
        **QwenDelta.hf_paths,
        **ROUTED_PATHS,
        **SHARED_PATHS,
        **delta_paths(
            "linear_attn",
            **dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj"), "in_proj_qkvz"),
            **dict.fromkeys(("rate_proj", "decay_proj"), "in_proj_ba"),
            **BEHIND,
        ),
    }
    hf_tensors: ClassVar = {**ROUTED_TENSORS, **TENSORS}

    def architecture(self) -> Transformer:
        """Experts beside a shared network, in all layers but those that are dense."""
        experts = beside_gated(self)
        dense = self.feed_forward()
        routed = with_experts(self.num_hidden_layers, self.decoder_sparse_step, self.mlp_only_layers)
        networks = [experts if some else dense for some in routed]
        return self.of_two_kinds(self.kinds(), networks)
