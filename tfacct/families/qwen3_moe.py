"""Qwen3-MoE: Qwen3's attention, and experts."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.parts import Experts, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch, UpTo
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active, with_experts
from tfacct.families._layers import SLIDING
from tfacct.families._qwen_like import QwenLike
from tfacct.families.qwen3 import Config as Qwen3

RELEASED = "2025-04"


class Config(QwenLike):
    """`Qwen3MoeConfig`, with its class's defaults. The window, where its switch is on, is in every layer."""

    intermediate_size: Count = 6144
    num_key_value_heads: Count = 4
    attention_bias: Switch = False
    moe_intermediate_size: Count = 768
    num_experts: Count = 128
    num_experts_per_tok: Count = 8
    decoder_sparse_step: Count = 1
    mlp_only_layers: list[UpTo] | None = None

    changes_training: ClassVar = frozenset({"output_router_logits", "in_blocks"})
    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 151936,
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
    }
    stems: ClassVar = ("Qwen3Moe",)
    nulls: ClassVar = {}
    aliases: ClassVar = {"num_local_experts": "num_experts"}
    harmless: ClassVar = frozenset(
        {"use_qk_norm", "qkv_bias", "dual_chunk_attention_config"}
    )  # the class has the norms and no such biases, whatever they say
    hf_paths: ClassVar = {**Qwen3.hf_paths, **ROUTED_PATHS}
    hf_tensors: ClassVar = ROUTED_TENSORS
    gotchas: ClassVar = (
        "dual_chunk_attention_config (files for a million tokens) is an engine's own, and so is what it says of sparse "
        "attention: the class attends to all pairs, and they are counted.",
        "An absent head_dim means hidden_size / num_attention_heads, not 128 as in Qwen3.",
        "A layer is dense, with a network of intermediate_size, if mlp_only_layers names it or if its number, counted "
        "from 1, is not a multiple of decoder_sparse_step.",
        "The window is off unless use_sliding_window is true. Then it is in every layer: the class reads neither "
        "max_window_layers nor layer_types for its masks.",
    )

    def architecture(self) -> Transformer:
        """Dense layers where decoder_sparse_step and mlp_only_layers say so."""
        if self.layer_types is not None and SLIDING in self.layer_types:
            raise self.refused("layer_types", self.layer_types)  # which the class's masks do not read
        check_active(self.num_experts_per_tok, self.num_experts, ("num_experts_per_tok", "num_experts"))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            activation=self.activation,
        )
        attention = self.attention(
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            qk_norm=QKNorm(self.rms_norm_eps),
            window=self.window,
        )
        routed = with_experts(self.num_hidden_layers, self.decoder_sparse_step, self.mlp_only_layers)
        dense = self.block(attention, self.feed_forward())
        sparse = self.block(attention, experts)
        return self.decoder([sparse if some else dense for some in routed])
