"""FSMT: fairseq's translators, BART's layout with sines that are stored and a table of tokens on each side."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.parts import Positions
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._bart_like import BartLike, Sides
from tfacct.families._base import Count, Switch, UpTo, Word
from tfacct.families._endings import SEQ2SEQ

RELEASED = "2019-07"


class Config(BartLike):
    """`FSMTConfig`, with its class's defaults, sizes too. What the class calls tgt_vocab_size it reads as vocab_size
    too."""

    vocab_size: Count = 42024
    src_vocab_size: Count = 42024
    max_position_embeddings: Count = 1024
    activation_function: Word = "relu"
    scale_embedding: Switch = True
    tie_word_embeddings: Switch = False
    pad_token_id: UpTo = 1

    stems: ClassVar = ("FSMT",)
    aliases: ClassVar = {**Sides.aliases, "tgt_vocab_size": "vocab_size"}
    harmless: ClassVar = BartLike.harmless | {"langs", "decoder"}
    heads: ClassVar = {"ForConditionalGeneration": SEQ2SEQ}
    hf_paths: ClassVar = {
        **BartLike.hf_paths,
        "embed": "model.decoder.embed_tokens",
        "encoder.embed": "model.encoder.embed_tokens",
        "lm_head": "model.decoder.output_projection",
    }

    def class_paths(self) -> Mapping[str, str]:
        """The token table, where both sides share one: the encoder's by name."""
        return {**self.hf_paths, "embed": self.hf_paths["encoder.embed"]} if self.tie_word_embeddings else self.hf_paths

    def architecture(self) -> Transformer:
        """A token table and positions on each side, and no norm behind them. Raises ConfigError."""
        shared, reads, writes = self.tie_word_embeddings, self.src_vocab_size, self.vocab_size
        if shared and reads != writes:
            raise ConfigError(
                f"src_vocab_size = {reads:,} contradicts tgt_vocab_size = {writes:,}: both sides share a table",
                "tie_word_embeddings=false gives each its own",
            )
        first = self.pad_token_id + 1
        positions = Positions(rows=self.max_position_embeddings + first, hidden=self.d_model, offset=first)
        return self.ends(positions, normed=False, own_table=not shared, source=reads)
