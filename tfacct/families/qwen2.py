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
    layer_types: Annotated[list[str], Field(strict=True)] | None = None

    harmless: ClassVar = frozenset({"sliding_window"})  # without use_sliding_window it is never read
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}

    @model_validator(mode="after")
    def _no_windows(self) -> Config:
        if self.use_sliding_window:
            raise ConfigError("use_sliding_window = true changes the counts, and windows are not understood yet")
        if self.layer_types is not None and self.layer_types != ["full_attention"] * self.num_hidden_layers:
            raise ConfigError(
                f"layer_types must be {self.num_hidden_layers} times full_attention: other layers change the counts,"
                " and are not understood yet"
            )
        return self

    def architecture(self) -> Transformer:
        """Biases on q, k and v; none on o and in the feed-forward network."""
        return self.with_biases(qkv=True, out=False, mlp=False)
