"""Youtu-LLM: DeepSeek-V3's latent attention, and dense networks in every layer."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Switch
from tfacct.families._endings import DECODER
from tfacct.families._latent_like import LatentLike

RELEASED = "2025-12"


class Config(LatentLike):
    """`YoutuConfig`, with its class's defaults, sizes too. The head is tied unless the config says otherwise."""

    vocab_size: Count = 128256
    hidden_size: Count = 2048
    intermediate_size: Count = 6144
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 16
    max_position_embeddings: Count = 131072
    tie_word_embeddings: Switch = True

    stems: ClassVar = ("Youtu",)
    heads: ClassVar = DECODER
    harmless: ClassVar = LatentLike.harmless | {"embedding_initializer_range"}

    def architecture(self) -> Transformer:
        """Equal blocks of latent attention and a dense network."""
        return self.decoder(self.equal_blocks(self.block(self.latent(), self.feed_forward())))
