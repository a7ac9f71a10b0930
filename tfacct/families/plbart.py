"""PLBART: BART for programs. Everything is BART's but the class's default sizes, and that it scales rows of tokens."""

from typing import ClassVar

from tfacct.families import bart
from tfacct.families._bart_like import DROPOUTS
from tfacct.families._base import Count, Layers, Switch

RELEASED = "2021-03"


class Config(bart.Config):
    """`PLBartConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 50005
    d_model: Count = 768
    encoder_layers: Layers = 6
    encoder_attention_heads: Count = 12
    encoder_ffn_dim: Count = 3072
    decoder_layers: Layers = 6
    decoder_attention_heads: Count = 12
    decoder_ffn_dim: Count = 3072
    scale_embedding: Switch = True

    dropouts: ClassVar = {**DROPOUTS, "attention": ("attention_dropout", 0.1)}
    stems: ClassVar = ("PLBart",)
    gotchas: ClassVar[tuple[str, ...]] = (
        "As BART wherever nothing else is said: tables, heads, what is refused.",
        "Token rows are multiplied by √d_model unless scale_embedding is false.",
    )
