"""RemBERT: BERT's encoder, with tables narrower than the model in front, and a wider one of the head's own."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Head
from tfacct.families._base import Count, Layers, Switch
from tfacct.families._bert_like import AbleToDecode, Sizes, class_table
from tfacct.families.bert import of_texts

RELEASED = "2020-10"

HEAD = {"lm_head.transform": "dense", "lm_head.norm": "LayerNorm", "lm_head": "decoder"}


class Config(AbleToDecode):
    """`RemBertConfig`, with its class's defaults: `RemBertForMaskedLM`, or the class that `architectures` names."""

    vocab_size: Count = 250300
    input_embedding_size: Count = 256
    output_embedding_size: Count = 1664
    hidden_size: Count = 1152
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 18
    intermediate_size: Count = 4608
    tie_word_embeddings: Switch = False

    stems: ClassVar = ("RemBert",)
    heads: ClassVar = of_texts("rembert.")
    body: ClassVar = "rembert."
    hf_paths: ClassVar = {
        **class_table("rembert.", {ours: f"cls.predictions.{theirs}" for ours, theirs in HEAD.items()}),
        "embed.project": "rembert.encoder.embedding_hidden_mapping_in",
    }

    @property
    def sizes(self) -> Sizes:
        """As the family's; the product behind the tables is there even where they are as wide as the model."""
        return super().sizes._replace(table=self.input_embedding_size)

    def head(self) -> Head:
        """Logits over a table of its own, behind a product, its activation and a LayerNorm."""
        return replace(super().head(), tied=False, width=None, own=self.output_embedding_size)

    def check(self) -> None:
        """Refuse what is not understood. Raises ConfigError."""
        for name, understood in {**self.understood, "tie_word_embeddings": False}.items():
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
