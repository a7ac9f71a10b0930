"""OLMo 3: OLMo 2's block; three layers of four have a window."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.complaints import shown
from tfacct.base.errors import ConfigError
from tfacct.families._layers import LayerTypes, windows
from tfacct.families.mistral import Window
from tfacct.families.olmo2 import Config as Olmo2

RELEASED = "2025-11"


class Config(Olmo2):
    """`Olmo3Config`, with its class's defaults."""

    sliding_window: Window | None = 4096
    layer_types: LayerTypes | None = None

    stems: ClassVar = ("Olmo3",)

    def of_layer(self, window: int | None) -> dict[str, Any]:
        """Window and angles of a layer: the class gives rope_theta and rope_scaling to full layers only."""
        full = window is None
        kind = "full_attention" if full else "sliding_attention"
        spelled = (self.rope_parameters or {}).get(kind) or (self.rope_scaling if full else None) or {}
        if not isinstance(spelled, Mapping):
            raise ConfigError(f"rope_parameters.{kind} must be an object of fields, not {shown(spelled)}")
        base = spelled.get("rope_theta") or (self.rope_theta if full else None) or 500_000.0
        return {"window": window, "rotary": Rotary(base, spelled)}

    def architecture(self) -> Transformer:
        """OLMo 2's block, of two kinds."""
        per_layer = windows(
            self.layer_types, self.num_hidden_layers, self.sliding_window, lambda number: (number + 1) % 4 != 0
        )
        kinds = {window: self.olmo_block(**self.of_layer(window)) for window in dict.fromkeys(per_layer)}
        return self.decoder([kinds[window] for window in per_layer])
