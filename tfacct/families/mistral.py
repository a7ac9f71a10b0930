"""Mistral: Llama's block, with a window in every layer in the first releases and none in later ones."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, whole
from tfacct.families._llama_like import LlamaLike

RELEASED = "2023-10"

Window = Annotated[int, whole(2)]


class Config(LlamaLike):
    """`MistralConfig`, with its class's defaults. An absent sliding_window is 4,096 there; only null is none."""

    intermediate_size: Count = 14336
    num_key_value_heads: Count = 8
    max_position_embeddings: Count = 131072
    sliding_window: Window | None = 4096

    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    }
    stems: ClassVar = ("Mistral",)

    def architecture(self) -> Transformer:
        """No biases; the window, where there is one, in every layer."""
        block = self.block(self.attention(window=self.sliding_window), self.feed_forward())
        return self.decoder(self.equal_blocks(block))
