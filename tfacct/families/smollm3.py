"""SmolLM3: Llama's block; every fourth layer does not rotate queries and keys."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._layers import Flags, LayerTypes, rotated, windows
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2025-07"


class Config(LlamaLike):
    """`SmolLM3Config`, with its class's defaults, sizes too. The head is tied unless the config says otherwise."""

    vocab_size: Count = 128256
    hidden_size: Count = 2048
    intermediate_size: Count = 11008
    num_hidden_layers: Layers = 36
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 4
    max_position_embeddings: Count = 32768
    tie_word_embeddings: Switch = True
    rope_theta: Real | None = 2_000_000.0
    attention_bias: Switch = False
    mlp_bias: Switch = False
    use_sliding_window: Switch = False
    sliding_window: Window | None = None
    layer_types: LayerTypes | None = None
    no_rope_layers: Flags | None = None
    no_rope_layer_interval: Count = 4

    stems: ClassVar = ("SmolLM3",)
    uncounted: ClassVar = LlamaLike.uncounted | {"sliding_window"}
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}
    gotchas: ClassVar = (
        "Parameters, products and cache are Llama's. The head is tied by class default.",
        "no_rope_layers holds 1 for a layer whose queries and keys are rotated and 0 for one where they are not; "
        "without it, every no_rope_layer_interval-th layer (4th if absent) is not rotated. That is pointwise work.",
        "The window is off unless use_sliding_window is true. Then the layers that are not rotated have it, or those "
        "that layer_types names.",
    )

    def architecture(self) -> Transformer:
        """Biases as in Llama; a window, where the switch is on, in layers that are not rotated."""
        window = self.sliding_window if self.use_sliding_window else None
        network = self.feed_forward(bias=self.mlp_bias)
        turns = rotated(self.no_rope_layers, self.num_hidden_layers, self.no_rope_layer_interval)
        off = "" if self.use_sliding_window else "use_sliding_window"
        seen = windows(
            self.layer_types, self.num_hidden_layers, window, lambda number: bool(window) and not turns[number], off
        )
        per_layer = list(zip(seen, turns, strict=True))
        biased = {"qkv_bias": self.attention_bias, "out_bias": self.attention_bias}
        kinds = {
            (window, turned): self.block(
                self.attention(window=window, **biased, **({} if turned else {"rotary": None})), network
            )
            for window, turned in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[kind] for kind in per_layer])
