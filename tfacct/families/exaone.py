"""EXAONE 3, 3.5 and Deep: Llama's block under names of its own."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.families.llama import Config as Llama

RELEASED = "2024-08"


class Config(Llama):
    """`ExaoneConfig` of its own code, with its defaults, sizes too: transformers has no class for it."""

    vocab_size: Count = 102400
    hidden_size: Count = 2048
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    intermediate_size: Count = Field(default_factory=lambda fields: 4 * fields["hidden_size"])
    max_position_embeddings: Count = 2048
    tie_word_embeddings: Switch = True
    rms_norm_eps: Real = 1e-5

    stems: ClassVar = ("Exaone", "Llama")
    class_type: ClassVar = "llama"
    inside: ClassVar[Mapping[str, int]] = {}  # its fields have them
    heads: ClassVar = DECODER
    aliases: ClassVar = {
        "num_layers": "num_hidden_layers",
        "activation_function": "hidden_act",
        "layer_norm_epsilon": "rms_norm_eps",
    }

    def architecture(self) -> Transformer:
        """Heads share the hidden size; no biases but those that the config asks for."""
        self.whole_heads()
        return Llama.architecture(self)

    def class_fields(self) -> Mapping[str, Any]:
        """Its fields, with their defaults, by Llama's names."""
        return self.model_dump(include=set(Llama.model_fields), exclude_none=True)
