"""What the Qwen families share: Llama's fields, and a window that a switch of their own turns on."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from tfacct.errors import ConfigError
from tfacct.families._base import Count, Switch
from tfacct.families._llama_like import LlamaLike


class QwenLike(LlamaLike):
    """The fields that Qwen2 and Qwen3 spell alike. An absent num_key_value_heads is 32, whatever the heads."""

    intermediate_size: Count = 22016
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 32768
    use_sliding_window: Switch = False
    sliding_window: Count | None = 4096
    max_window_layers: Annotated[int, Field(strict=True, ge=0)] = 28
    layer_types: Annotated[list[str], Field(strict=True)] | None = None

    uncounted: ClassVar = LlamaLike.uncounted | {"sliding_window", "max_window_layers"}
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}

    @model_validator(mode="after")
    def _no_windows(self) -> QwenLike:
        slides = self.use_sliding_window and self.sliding_window is not None
        if slides and self.max_window_layers < self.num_hidden_layers:
            raise ConfigError(
                f"use_sliding_window = true gives the layers from {self.max_window_layers} on a window, which changes"
                " the counts, and windows are not understood yet"
            )
        if self.layer_types is not None and self.layer_types != ["full_attention"] * self.num_hidden_layers:
            raise ConfigError(
                f"layer_types must be {self.num_hidden_layers} times full_attention: other layers change the counts,"
                " and are not understood yet"
            )
        return self
