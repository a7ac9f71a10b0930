"""Command R7B and Command A: Command R's block; three layers of four have a window, the fourth has no positions."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count
from tfacct.families._cohere_like import CohereLike
from tfacct.families._layers import LayerTypes, windows
from tfacct.families.mistral import Window

RELEASED = "2024-12"


class Config(CohereLike):
    """`Cohere2Config`, with its class's defaults, sizes too."""

    sliding_window: Window | None = 4096
    layer_types: LayerTypes | None = None
    sliding_window_pattern: Count = 4

    stems: ClassVar = ("Cohere2",)
    harmless: ClassVar = CohereLike.harmless | {"_sliding_window_pattern"}

    def architecture(self) -> Transformer:
        """Windowed layers are rotated, the others are not."""
        self.whole_heads()
        per_layer = windows(
            self.layer_types,
            self.num_hidden_layers,
            self.sliding_window,
            lambda number: (number + 1) % self.sliding_window_pattern != 0,
        )
        kinds = {
            window: self.beside(self.attention(window=window) if window else self.attention(rotary=None))
            for window in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[window] for window in per_layer])
