"""XLM-RoBERTa XL and XXL: RoBERTa's parts with the norms in front of the sublayers, and none behind the tables."""

from typing import ClassVar

from tfacct.families import roberta
from tfacct.families._base import Count, Layers, Real
from tfacct.families._bert_like import LM_HEAD, class_table

RELEASED = "2021-05"


class Config(roberta.Config):
    """`XLMRobertaXLConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 250880
    hidden_size: Count = 2560
    num_hidden_layers: Layers = 36
    num_attention_heads: Count = 32
    intermediate_size: Count = 10240
    max_position_embeddings: Count = 514
    type_vocab_size: Count = 1
    layer_norm_eps: Real = 1e-5

    stems: ClassVar = ("XLMRobertaXL",)
    order: ClassVar = "pre"
    dropouts: ClassVar = {
        ("attn" if place == "residual" else place): field for place, field in roberta.Config.dropouts.items()
    }
    front_norm: ClassVar = False
    hf_paths: ClassVar = {
        **{ours: theirs for ours, theirs in class_table("roberta.", LM_HEAD).items() if ours != "embed_norm"},
        "blocks.*.attn_norm": "roberta.encoder.layer.*.attention.self_attn_layer_norm",
        "blocks.*.mlp_norm": "roberta.encoder.layer.*.LayerNorm",
        "final_norm": "roberta.encoder.LayerNorm",
    }
