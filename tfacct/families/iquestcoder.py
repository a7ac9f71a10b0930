"""IQuest-Coder V1: Llama's block, run by Llama's class."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.families._base import Count, Layers, Real
from tfacct.families._endings import DECODER
from tfacct.families._llama_like import OWN_SHARE
from tfacct.families.llama import Config as Llama

RELEASED = "2026-01"


class Config(Llama):
    """`IQuestCoderConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 76800
    hidden_size: Count = 5120
    intermediate_size: Count = 27648
    num_hidden_layers: Layers = 80
    num_attention_heads: Count = 40
    num_key_value_heads: Count = 8
    head_dim: Count = 128
    max_position_embeddings: Count = 131072
    rms_norm_eps: Real = 1e-5

    inside: ClassVar[Mapping[str, int]] = {}  # its fields have them
    stems: ClassVar = ("IQuestCoder", "Llama")
    heads: ClassVar = DECODER
    nulls: ClassVar = {**OWN_SHARE}
