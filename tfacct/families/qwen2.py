"""Qwen2 and Qwen2.5: Llama's block with biases on q, k and v, which the config does not say."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from tfacct.architecture import Transformer
from tfacct.errors import ConfigError
from tfacct.families._base import Count, Switch
from tfacct.families._llama_like import LlamaLike


class Config(LlamaLike):
    """`Qwen2Config`, with its class's defaults. An absent num_key_value_heads is 32 there, whatever the heads."""

    intermediate_size: Count = 22016
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 32768
    use_sliding_window: Switch = False
    sliding_window: Count | None = 4096
    max_window_layers: Annotated[int, Field(strict=True, ge=0)] = 28
    layer_types: Annotated[list[str], Field(strict=True)] | None = None

    harmless: ClassVar = frozenset({"qkv_bias"})  # q, k and v have biases, whatever it says
    uncounted: ClassVar = LlamaLike.uncounted | {"sliding_window", "max_window_layers"}
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}

    @model_validator(mode="after")
    def _no_windows(self) -> Config:
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

    def architecture(self) -> Transformer:
        """Biases on q, k and v; none on o and in the feed-forward network."""
        return self.with_biases(qkv=True, out=False, mlp=False)
