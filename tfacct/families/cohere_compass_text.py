"""Cohere's North: Command R's block, with angles in halves; some kinds of layers may have no positions, or a window."""

from typing import Any, ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Fields, Real
from tfacct.families._cohere_like import CohereLike
from tfacct.families._endings import BODY, CAUSAL_MODEL
from tfacct.families._layers import FULL, SLIDING, LayerTypes, windows
from tfacct.families.mistral import Window

RELEASED = "2026-08"


class Config(CohereLike):
    """`CohereCompassTextConfig`, with its class's defaults, sizes too."""

    logit_scale: Real | None = None  # type: ignore[assignment]
    sliding_window: Window | None = 4096
    layer_types: LayerTypes | None = None
    rope_parameters: Fields

    stems: ClassVar = ("CohereCompass", "CohereCompassText")
    heads: ClassVar = {"ForCausalLM": CAUSAL_MODEL, "Model": BODY}
    harmless: ClassVar = frozenset({"pooling"})

    def turned(self, window: int | None) -> Rotary | None:
        """The angles of a layer with this window; None where it is not rotated. Raises ConfigError."""
        kind = FULL if window is None else SLIDING
        spelled: Any = self.rope_parameters.get(kind, kind)
        if spelled is None:
            return None
        if not isinstance(spelled, dict):
            raise ConfigError(
                f"rope_parameters must have the angles of {kind}, or null for it, as there are layers of that kind"
            )
        return Rotary(spelled.get("rope_theta") or 10_000.0, spelled)

    def of_window(self, window: int | None) -> Block:
        """A layer with this window. Raises ConfigError."""
        return self.beside(self.attention(window=window, rotary=self.turned(window)))

    def architecture(self) -> Transformer:
        """Windows where layer_types says so."""
        self.whole_heads()
        seen = windows(self.layer_types, self.num_hidden_layers, self.sliding_window, lambda _number: False)
        kinds = {window: self.of_window(window) for window in dict.fromkeys(seen)}
        return self.decoder([kinds[window] for window in seen])
