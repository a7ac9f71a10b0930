"""Shared by the Qwen families: Llama's fields, and a window with its own switch."""

from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Switch, UpTo
from tfacct.families._layers import LayerTypes, windows
from tfacct.families._llama_like import LlamaLike


class QwenLike(LlamaLike):
    """The fields that the Qwen families spell alike. An absent num_key_value_heads is 32, whatever the heads."""

    intermediate_size: Count = 22016
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 32768
    use_sliding_window: Switch = False
    sliding_window: UpTo | None = 4096
    max_window_layers: UpTo = 28
    layer_types: LayerTypes | None = None
    is_causal: Switch | None = None
    in_blocks: Switch | None = None

    uncounted: ClassVar = LlamaLike.uncounted | {"sliding_window", "max_window_layers"}
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}

    def attention(self, **own: Any) -> Attention:
        """Grouped-query attention; every token sees all others where is_causal is false. `in_blocks` is a field of
        this program and of no published config."""
        how = {"causal": False} if self.is_causal is False else {"blocks": self.in_blocks is True}
        return super().attention(**own, **how)

    def class_keeps(self) -> Transformer:
        """The class keeps keys and values where is_causal is false too."""
        if self.is_causal is not False:
            return super().class_keeps()

        def kept(part: Part) -> Part:
            return replace(part, causal=True) if isinstance(part, Attention) else part

        return self.transformer().mapped(kept)

    @property
    def window(self) -> int | None:
        """The window of those layers that have one; nothing while the switch is off. Raises ConfigError."""
        if not self.use_sliding_window or self.sliding_window is None:
            return None
        if self.sliding_window < 2:
            raise ConfigError(
                f"sliding_window = {self.sliding_window} is too small: a token sees itself and at least one before it",
                "use_sliding_window=false switches it off",
            )
        if self.is_causal is False:
            raise self.refused("is_causal", False)
        return self.sliding_window

    def windows(self) -> list[int | None]:
        """The layers from max_window_layers on have the window, where the switch is on."""
        return windows(
            self.layer_types,
            self.num_hidden_layers,
            self.window,
            lambda number: bool(self.window) and number >= self.max_window_layers,
            "" if self.use_sliding_window else "use_sliding_window",
        )
