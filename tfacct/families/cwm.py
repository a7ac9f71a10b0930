"""CWM: Llama's block; every fourth layer sees everything, the others have a window."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fields, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.families._layers import LayerTypes, windows
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2025-09"

ROPE = {
    "rope_theta": 1_000_000.0,
    "factor": 16.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
"""The class's angles where the config has none."""


class Config(LlamaLike):
    """`CwmConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 128256
    hidden_size: Count = 6144
    intermediate_size: Count = 21504
    num_hidden_layers: Layers = 64
    num_attention_heads: Count = 48
    num_key_value_heads: Count = 8
    head_dim: Count = 128
    max_position_embeddings: Count = 131072
    mlp_bias: Switch = False
    sliding_window: Window | None = 8192
    layer_types: LayerTypes | None = None
    rms_norm_eps: Real = 1e-5
    rope_parameters: Fields | None = ROPE

    stems: ClassVar = ("Cwm",)
    heads: ClassVar = DECODER

    def architecture(self) -> Transformer:
        """mlp_bias is on all three of the network; windows in three layers of four."""
        network = self.feed_forward(bias=self.mlp_bias)
        per_layer = windows(
            self.layer_types, self.num_hidden_layers, self.sliding_window, lambda number: number % 4 != 0
        )
        kinds = {window: self.block(self.attention(window=window), network) for window in dict.fromkeys(per_layer)}
        return self.decoder([kinds[window] for window in per_layer])
