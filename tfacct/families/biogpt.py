"""BioGPT: GPT-2's blocks; two more rows of positions, rows of tokens times √hidden."""

from typing import ClassVar

from tfacct.architecture.parts import Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Switch, Word
from tfacct.families._endings import CLASSIFYING, TOKENS_CLASSIFIED
from tfacct.families._fairseq_like import OFFSET, class_table, language_model

RELEASED = "2022-10"


class Config(FamilyConfig):
    """`BioGptConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 42384
    hidden_size: Count = 1024
    num_hidden_layers: Layers = 24
    num_attention_heads: Count = 16
    intermediate_size: Count = 4096
    max_position_embeddings: Count = 1024
    scale_embedding: Switch = True
    tie_word_embeddings: Switch = True
    hidden_act: Word = "gelu"

    stems: ClassVar = ("BioGpt",)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"hidden_act"})
    harmless: ClassVar = frozenset({"layerdrop"})
    heads: ClassVar = {**CLASSIFYING, "ForTokenClassification": TOKENS_CLASSIFIED}
    body: ClassVar = "biogpt."
    hf_paths: ClassVar = class_table("biogpt.", "output_projection")

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def architecture(self) -> Transformer:
        """Learned positions; the class's norms have the ε of torch, whatever layer_norm_eps says."""
        return language_model(
            vocab=self.vocab_size,
            hidden=self.hidden_size,
            layers=self.num_hidden_layers,
            heads=self.num_attention_heads,
            width=self.intermediate_size,
            positions=Positions(rows=self.max_position_embeddings + OFFSET, hidden=self.hidden_size, offset=OFFSET),
            scaled=self.scale_embedding,
            tied=self.tie_word_embeddings,
            activation=self.hidden_act,
        )
