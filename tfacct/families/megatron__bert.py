"""Megatron's BERT: BERT's parts with the norms in front of the sublayers, none behind the tables, one at the end."""

from typing import ClassVar

from tfacct.families import bert
from tfacct.families._base import Count, Layers
from tfacct.families._bert_like import AbleToDecode

RELEASED = "2019-09"


class Config(AbleToDecode):
    """`MegatronBertConfig`, with its class's defaults: `MegatronBertForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 29056
    hidden_size: Count = 1024
    num_hidden_layers: Layers = 24
    num_attention_heads: Count = 16
    intermediate_size: Count = 4096

    stems: ClassVar = ("MegatronBert",)
    order: ClassVar = "pre"
    front_norm: ClassVar = False
    heads: ClassVar = bert.Config.heads
    hf_paths: ClassVar = {
        **{ours: theirs for ours, theirs in bert.Config.hf_paths.items() if ours != "embed_norm"},
        "blocks.*.attn_norm": "bert.encoder.layer.*.attention.ln",
        "blocks.*.mlp_norm": "bert.encoder.layer.*.ln",
        "final_norm": "bert.encoder.ln",
    }
    hf_tensors: ClassVar = bert.Config.hf_tensors
