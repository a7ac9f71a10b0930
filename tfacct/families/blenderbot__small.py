"""Blenderbot small: BART's blocks, with positions from the first row on."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Embedding, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._bart_like import DROPOUTS, BartLike
from tfacct.families._base import Count, Layers, Switch
from tfacct.families._endings import BODY, SEQ2SEQ

RELEASED = "2020-04"


class Config(BartLike):
    """`BlenderbotSmallConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 50265
    d_model: Count = 512
    encoder_layers: Layers = 8
    encoder_ffn_dim: Count = 2048
    decoder_layers: Layers = 8
    decoder_ffn_dim: Count = 2048
    max_position_embeddings: Count = 512
    normalize_embedding: Switch = True
    static_position_embeddings: Switch = False
    do_blenderbot_90_layernorm: Switch = True

    dropouts: ClassVar = DROPOUTS
    stems: ClassVar = ("BlenderbotSmall",)
    uncounted: ClassVar = BartLike.uncounted | {"normalize_embedding", "static_position_embeddings"}
    harmless: ClassVar = BartLike.harmless | {"layernorm_variant"}
    understood: ClassVar = {
        **BartLike.understood,
        "normalize_embedding": True,
        "static_position_embeddings": False,
        "do_blenderbot_90_layernorm": True,
    }
    heads: ClassVar = {"ForConditionalGeneration": SEQ2SEQ, "Model": BODY}

    def architecture(self) -> Transformer:
        """One token table for both sides and the head; each side has positions."""
        if not self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", False)
        whole = self.ends(Positions(rows=self.max_position_embeddings, hidden=self.d_model), normed=True)
        assert whole.positions is not None and isinstance(whole.embed, Embedding)
        embed = replace(whole.embed, scaled=False)
        return replace(whole, embed=embed, positions=replace(whole.positions, behind=True))
