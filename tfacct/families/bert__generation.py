"""BERT's body as one side of a pair of models: a decoder that keeps keys and values, or an encoder; no segments."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Attention, Head
from tfacct.families._base import Count, Layers, Switch
from tfacct.families._bert_like import AbleToDecode, BertLike, class_table
from tfacct.families._endings import BODY, CAUSAL_MODEL

RELEASED = "2019-07"

TABLE = class_table("bert.", {"lm_head": "lm_head.decoder"})


class Config(BertLike):
    """`BertGenerationConfig`, with its class's defaults: `BertGenerationDecoder`, or what `architectures` names."""

    vocab_size: Count = 50358
    hidden_size: Count = 1024
    num_hidden_layers: Layers = 24
    num_attention_heads: Count = 16
    intermediate_size: Count = 4096
    is_decoder: Switch = False

    stems: ClassVar = ("BertGeneration",)
    heads: ClassVar = {"Decoder": CAUSAL_MODEL, "Encoder": BODY}
    dropouts: ClassVar = {name: said for name, said in AbleToDecode.dropouts.items() if name != "classifier"}
    hf_paths: ClassVar = {ours: theirs for ours, theirs in TABLE.items() if ours != "type_embed"}
    hf_tensors: ClassVar = {"lm_head.bias": "lm_head.bias"}

    def attention(self) -> Attention:
        """Causal in a decoder."""
        return replace(super().attention(), causal=self.is_decoder)

    def head(self) -> Head:
        """Without a transform."""
        return replace(super().head(), transform=None)
