"""Ministral 8B: Mistral's block, with the window in the layers that the config names."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers
from tfacct.families._layers import LayerTypes, windows
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2024-10"


class Config(LlamaLike):
    """`MinistralConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 32000
    hidden_size: Count = 4096
    intermediate_size: Count = 14336
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    head_dim: Count
    max_position_embeddings: Count = 131072
    sliding_window: Window = 4096
    layer_types: LayerTypes | None = None

    stems: ClassVar = ("Ministral",)
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}

    def architecture(self) -> Transformer:
        """No biases; the window in the layers that have it."""
        network = self.feed_forward()
        per_layer = windows(self.layer_types, self.num_hidden_layers, self.sliding_window, lambda _: True)
        kinds = {size: self.block(self.attention(window=size), network) for size in dict.fromkeys(per_layer)}
        return self.decoder([kinds[size] for size in per_layer])
