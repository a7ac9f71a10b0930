"""Mistral without a window: 7B from v0.2 on, and Nemo, whose heads have a size of their own."""

from __future__ import annotations

from typing import ClassVar

from pydantic import model_validator

from tfacct.architecture import Transformer
from tfacct.errors import ConfigError
from tfacct.families._base import Count
from tfacct.families._llama_like import LlamaLike


class Config(LlamaLike):
    """`MistralConfig`, with its class's defaults. An absent sliding_window is 4,096 there; only null is none."""

    intermediate_size: Count = 14336
    num_key_value_heads: Count = 8
    max_position_embeddings: Count = 131072
    sliding_window: Count | None = 4096

    uncounted: ClassVar = LlamaLike.uncounted | {"sliding_window"}

    @model_validator(mode="after")
    def _no_window(self) -> Config:
        if self.sliding_window is not None:
            raise ConfigError(
                f"sliding_window = {self.sliding_window:,} (4,096 where it is absent) changes the counts, and windows"
                " are not understood yet",
                "to count the model as if every token saw all before it: --set sliding_window=null",
            )
        return self

    def architecture(self) -> Transformer:
        """No biases."""
        return self.with_biases(qkv=False, out=False, mlp=False)
