"""Marian: the Transformer as first published, with sine positions that are stored but not trained."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.parts import Positions
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._bart_like import DROPOUTS, BartLike
from tfacct.families._base import Count, Switch
from tfacct.families._endings import BODY, SEQ2SEQ

RELEASED = "2018-04"


class Config(BartLike):
    """`model_type = "marian"`."""

    vocab_size: Count = 58101
    decoder_vocab_size: Count | None = None
    share_encoder_decoder_embeddings: Switch = True
    normalize_embedding: Switch = False
    static_position_embeddings: Switch = True

    dropouts: ClassVar = DROPOUTS
    stems: ClassVar = ("Marian",)
    uncounted: ClassVar = BartLike.uncounted | {"normalize_embedding", "static_position_embeddings"}
    harmless: ClassVar = BartLike.harmless | {"num_layers"}
    heads: ClassVar = {"MTModel": SEQ2SEQ, "Model": BODY}

    def class_paths(self) -> Mapping[str, str]:
        """The token tables, where each side has one."""
        if self.share_encoder_decoder_embeddings:
            return self.hf_paths
        tables = {"embed": "model.decoder.embed_tokens", "encoder.embed": "model.encoder.embed_tokens"}
        return {**self.hf_paths, **tables}

    def architecture(self) -> Transformer:
        """One token table, or one for each side; positions on each side, and no norm behind them."""
        for name, understood in (("normalize_embedding", False), ("static_position_embeddings", True)):
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        shared, target = self.share_encoder_decoder_embeddings, self.decoder_vocab_size
        if shared and not self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", False)
        if shared and target not in (None, self.vocab_size):
            raise ConfigError(
                f"decoder_vocab_size = {target:,} contradicts vocab_size = {self.vocab_size:,}:"
                " both sides share a table",
                "share_encoder_decoder_embeddings=false gives each its own",
            )
        positions = Positions(rows=self.max_position_embeddings, hidden=self.d_model, trained=False)
        return self.ends(positions, normed=False, own_table=not shared, target=target)
