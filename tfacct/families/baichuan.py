"""Baichuan 1 and 2: Llama's block, q, k and v in one matrix; 13B lowers scores by distance (ALiBi)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers
from tfacct.families._endings import DECODER
from tfacct.families._llama_like import LlamaLike

RELEASED = "2023-06"

CONTEXT = 4096
"""Longest context where a config says none, in the code of both sizes."""


class Config(LlamaLike):
    """`BaiChuanConfig` (7B) and `BaichuanConfig` (13B) of its own code: transformers has no class for them."""

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Count
    intermediate_size: Count
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count | None = None  # type: ignore[assignment]
    model_max_length: Count | None = None

    stems: ClassVar = ("Baichuan", "BaiChuan", "Llama")
    in_files: ClassVar = ((r"\.W_pack\.", ".qkv_proj."),)
    class_type: ClassVar = "llama"
    fixed: ClassVar = frozenset("G")
    heads: ClassVar = DECODER
    harmless: ClassVar = frozenset({"z_loss_weight"})

    @property
    def context(self) -> int:
        """max_position_embeddings, else model_max_length."""
        return self.max_position_embeddings or self.model_max_length or CONTEXT

    def architecture(self) -> Transformer:
        """Heads share the hidden size, each with its own keys. Raises ConfigError."""
        self.whole_heads()
        if self.num_key_value_heads != self.num_attention_heads:
            raise self.refused("num_key_value_heads", self.num_key_value_heads)
        lowered = {"alibi": True, "rotary": None} if self.max_position_embeddings is None else {}
        return self.decoder(self.equal_blocks(self.block(self.attention(**lowered), self.feed_forward())))

    def class_fields(self) -> Mapping[str, Any]:
        """Its context, by Llama's name."""
        return {"max_position_embeddings": self.context}
