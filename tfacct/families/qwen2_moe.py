"""Qwen2-MoE: Qwen2's attention; experts, and one gated shared network that every token passes through."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch, UpTo
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, SHARED_PATHS, beside_gated, with_experts
from tfacct.families._layers import windows
from tfacct.families._qwen_like import QwenLike

RELEASED = "2024-03"


class Config(QwenLike):
    """`Qwen2MoeConfig`, with its class's defaults."""

    intermediate_size: Count = 5632
    num_key_value_heads: Count = 16
    qkv_bias: Switch = True
    moe_intermediate_size: Count = 1408
    shared_expert_intermediate_size: Count = 5632
    num_experts: Count = 60
    num_experts_per_tok: Count = 4
    decoder_sparse_step: Count = 1
    mlp_only_layers: list[UpTo] | None = None

    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 151936,
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    }
    changes_training: ClassVar = frozenset({"output_router_logits"})
    stems: ClassVar = ("Qwen2Moe",)
    nulls: ClassVar = {}
    hf_paths: ClassVar = {
        **QwenLike.hf_paths,
        **ROUTED_PATHS,
        **SHARED_PATHS,
    }
    hf_tensors: ClassVar = ROUTED_TENSORS
    gotchas: ClassVar = (
        "Every token passes through one shared network of width shared_expert_intermediate_size. A gate weights its "
        "result by one number per token.",
        "qkv_bias is read here, and true if absent.",
        "A layer is dense, with a network of intermediate_size, if mlp_only_layers names it or if its number, counted "
        "from 1, is not a multiple of decoder_sparse_step.",
        "The window is off unless use_sliding_window is true. Then every other of the first max_window_layers layers "
        "has it, beginning with the first. Qwen2 differs.",
        "norm_topk_prob changes weights, not counts.",
    )

    def windows(self) -> list[int | None]:
        """Every other of the first max_window_layers layers has the window, where the switch is on."""
        return windows(
            self.layer_types,
            self.num_hidden_layers,
            self.window,
            lambda number: bool(self.window) and number % 2 == 0 and number < self.max_window_layers,
            "" if self.use_sliding_window else "use_sliding_window",
        )

    def architecture(self) -> Transformer:
        """Dense layers where decoder_sparse_step and mlp_only_layers say so."""
        experts = beside_gated(self)
        dense = self.feed_forward()
        routed = with_experts(self.num_hidden_layers, self.decoder_sparse_step, self.mlp_only_layers)
        per_layer = list(zip(self.windows(), routed, strict=True))
        kinds = {
            (window, some): self.block(
                self.attention(qkv_bias=self.qkv_bias, window=window), experts if some else dense
            )
            for window, some in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[kind] for kind in per_layer])
