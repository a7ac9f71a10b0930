"""Mellum 2: Qwen3's attention and experts; windows in the layers that a list names, with angles of their own."""

from typing import ClassVar

from tfacct.architecture.parts import Attention, QKNorm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fields, Layers, Switch
from tfacct.families._endings import DECODER
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, LayerNetworks, beside_shared, dense_or_sparse
from tfacct.families._layers import FULL, SLIDING, LayerTypes, angles_of, windows
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window
from tfacct.families.qwen3 import Config as Qwen3

RELEASED = "2026-05"

ROPE = {
    FULL: {"rope_type": "default", "rope_theta": 500_000.0},
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
}
"""The class's angles where the config has none."""


class Config(LlamaLike):
    """`MellumConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 98304
    hidden_size: Count = 2304
    intermediate_size: Count = 7168
    num_hidden_layers: Layers = 28
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 4
    head_dim: Count = 128
    max_position_embeddings: Count = 131072
    rope_parameters: Fields | None = ROPE
    attention_bias: Switch = False
    sliding_window: Window | None = 1024
    layer_types: LayerTypes | None = None
    mlp_layer_types: LayerNetworks | None = None
    moe_intermediate_size: Count = 896
    num_experts: Count = 64
    num_experts_per_tok: Count = 8

    stems: ClassVar = ("Mellum",)
    aliases: ClassVar = {"num_local_experts": "num_experts"}
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {**Qwen3.hf_paths, **ROUTED_PATHS}
    hf_tensors: ClassVar = ROUTED_TENSORS

    def turned(self, window: int | None) -> Rotary:
        """The angles of a layer's type. Raises ConfigError."""
        spelled = angles_of(self.rope_parameters, ROPE, window)
        return Rotary(spelled.get("rope_theta") or 10_000.0, spelled)

    def of_layer(self, window: int | None) -> Attention:
        """Attention with norms of queries and keys; attention_bias is on all four projections."""
        return self.attention(
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            qk_norm=QKNorm(self.rms_norm_eps),
            window=window,
            rotary=self.turned(window),
        )

    def architecture(self) -> Transformer:
        """Windows and experts as the lists say."""
        layers = self.num_hidden_layers
        seen = windows(self.layer_types, layers, self.sliding_window, lambda _number: False)
        routed = [True] * layers if self.mlp_layer_types is None else dense_or_sparse(self.mlp_layer_types, layers)
        experts = beside_shared(self, self.num_experts, 0)
        per_layer = list(zip(seen, routed, strict=True))
        kinds = {
            (window, some): self.block(self.of_layer(window), experts if some else self.feed_forward())
            for window, some in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[kind] for kind in per_layer])
