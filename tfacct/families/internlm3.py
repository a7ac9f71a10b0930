"""InternLM3: Llama's block, run by Llama's class."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Real
from tfacct.families._endings import DECODER
from tfacct.families._llama_like import OWN_SHARE
from tfacct.families.llama import Config as Llama

RELEASED = "2025-01"


class Config(Llama):
    """`InternLM3Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 128512
    hidden_size: Count = 4096
    intermediate_size: Count = 10240
    num_hidden_layers: Layers = 48
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 2
    head_dim: Count = 128
    max_position_embeddings: Count = 32768
    rms_norm_eps: Real = 1e-5

    inside: ClassVar[Mapping[str, int]] = {}  # its fields have them
    stems: ClassVar = ("InternLM3", "Llama")
    heads: ClassVar = DECODER
    nulls: ClassVar = {**OWN_SHARE}
    aliases: ClassVar = {"qkv_bias": "attention_bias", "bias": "mlp_bias"}

    def architecture(self) -> Transformer:
        """Biases on all projections or on none."""
        if self.attention_bias != self.mlp_bias:
            raise ConfigError("qkv_bias and bias differ: the class runs one with both or with neither")
        return Llama.architecture(self)
