"""Jina Embeddings v3: XLM-RoBERTa with rotary positions in place of the table."""

from typing import ClassVar

from tfacct.families._base import Count, Real, UpTo
from tfacct.families._bert_like import ENCODING, LM_HEAD, BertLike
from tfacct.families._rotary_bert import RotaryBert, class_table

RELEASED = "2024-09"


class Config(RotaryBert):
    """`JinaEmbeddingsV3Config`, with its class's defaults: `JinaEmbeddingsV3ForMaskedLM`, or what `architectures`
    names."""

    vocab_size: Count = 250002
    hidden_size: Count = 1024
    num_hidden_layers: Count = 24
    num_attention_heads: Count = 16
    intermediate_size: Count = 4096
    max_position_embeddings: Count = 8194
    type_vocab_size: UpTo = 1
    layer_norm_eps: Real = 1e-5

    stems: ClassVar = ("JinaEmbeddingsV3",)
    heads: ClassVar = ENCODING
    head_first: ClassVar = True
    head_act: ClassVar = "gelu"
    body: ClassVar = "roberta."
    theta: ClassVar = 20_000.0
    qkvo_bias: ClassVar = True
    hf_paths: ClassVar = class_table("roberta.", LM_HEAD, {"up_proj": "fc1", "down_proj": "fc2"})
    hf_tensors: ClassVar = {"lm_head.bias": "lm_head.bias"}

    network = BertLike.network
