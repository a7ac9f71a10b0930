"""XGLM: GPT-2's blocks; sines for positions, computed and not stored, rows of tokens times √hidden."""

from typing import ClassVar

from tfacct.architecture.parts import Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Switch, Word
from tfacct.families._endings import DECODER
from tfacct.families._fairseq_like import OFFSET, class_table, language_model

RELEASED = "2021-12"


class Config(FamilyConfig):
    """`XGLMConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 256008
    d_model: Count = 1024
    num_layers: Layers = 24
    attention_heads: Count = 16
    ffn_dim: Count = 4096
    max_position_embeddings: Count = 2048
    scale_embedding: Switch = True
    tie_word_embeddings: Switch = True
    activation_function: Word = "gelu"

    stems: ClassVar = ("XGLM",)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"activation_function"})
    harmless: ClassVar = frozenset({"layerdrop", "init_std"})
    aliases: ClassVar = {
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "attention_heads",
    }
    heads: ClassVar = DECODER
    hf_paths: ClassVar = class_table("model.", "lm_head")

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def architecture(self) -> Transformer:
        """Sines of positions that are counted from 2."""
        rows = self.max_position_embeddings + OFFSET
        return language_model(
            vocab=self.vocab_size,
            hidden=self.d_model,
            layers=self.num_layers,
            heads=self.attention_heads,
            width=self.ffn_dim,
            positions=Positions(rows=rows, hidden=self.d_model, offset=OFFSET, stored=False, halves=True),
            scaled=self.scale_embedding,
            tied=self.tie_word_embeddings,
            activation=self.activation_function,
        )
