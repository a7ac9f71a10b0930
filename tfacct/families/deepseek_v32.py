"""DeepSeek-V3.2: V3's block, and an indexer in every layer that chooses the keys a token reads."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers
from tfacct.families._indexed import Indexed


class Config(Indexed):
    """`DeepseekV32Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 129280
    hidden_size: Count = 7168
    intermediate_size: Count = 18432
    num_hidden_layers: Layers = 61
    num_attention_heads: Count = 128
    num_key_value_heads: Count = 128
    max_position_embeddings: Count = 163840
    q_lora_rank: Count = 1536
    index_n_heads: Count = 64

    stems: ClassVar = ("DeepseekV32",)
    gotchas: ClassVar = (*Indexed.gotchas, "An absent q_lora_rank means 1,536.")

    def architecture(self) -> Transformer:
        """An indexer in every layer."""
        self.refuse()
        return self.indexed([self.choosing()] * self.num_hidden_layers)
