"""Blenderbot: mBART's blocks, with positions from the first row on and no norm behind the tables."""

from typing import ClassVar

from tfacct.architecture.parts import Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._bart_like import DROPOUTS, LAYERS_DROPPED, PreNorm
from tfacct.families._base import Count, Layers

RELEASED = "2020-04"


class Config(PreNorm):
    """`BlenderbotConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 8008
    d_model: Count = 2560
    encoder_layers: Layers = 2
    encoder_attention_heads: Count = 32
    encoder_ffn_dim: Count = 10240
    decoder_layers: Layers = 24
    decoder_attention_heads: Count = 32
    decoder_ffn_dim: Count = 10240
    max_position_embeddings: Count = 128

    dropouts: ClassVar = DROPOUTS
    changes_training: ClassVar = LAYERS_DROPPED
    stems: ClassVar = ("Blenderbot",)
    harmless: ClassVar = PreNorm.harmless | {"layernorm_variant"}
    understood: ClassVar = {
        **PreNorm.understood,
        "normalize_embedding": False,
        "static_position_embeddings": False,
    }
    gotchas: ClassVar = (
        "Norms stand in front of the sublayers and behind the last block of each side; there is none behind the"
        " tables.",
        "Both position tables have max_position_embeddings rows, and no further ones.",
        "tie_word_embeddings = false is refused: the class then stores a third table, which nothing reads.",
    )

    def architecture(self) -> Transformer:
        """One token table for both sides and the head; each side has positions."""
        return self.around(Positions(rows=self.max_position_embeddings, hidden=self.d_model))
