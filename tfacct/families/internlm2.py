"""InternLM2 and 2.5: Llama's block; q, k and v in one matrix of their own files."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tfacct.families._base import Count, Layers, Switch
from tfacct.families._endings import DECODER, Ending
from tfacct.families.llama import Config as Llama

RELEASED = "2024-01"
REWARD = Ending("", "classes", paths={"classifier": "v_head"}, picks=True, scores=1, obeys=False)
"""One score of a sequence, where its reward token stands."""


class Config(Llama):
    """`InternLM2Config` of its own code, with its defaults, sizes too: transformers has no class for it."""

    vocab_size: Count = 103168
    hidden_size: Count = 4096
    intermediate_size: Count = 11008
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 2048
    attention_bias: Switch = True

    stems: ClassVar = ("InternLM2", "Llama")
    class_type: ClassVar = "llama"
    inside: ClassVar[Mapping[str, int]] = {}  # its fields have them
    heads: ClassVar = {**DECODER, "ForRewardModel": REWARD}
    harmless: ClassVar = Llama.harmless | {"reward_token_id"}
    aliases: ClassVar = {"bias": "attention_bias"}

    def class_fields(self) -> Mapping[str, Any]:
        """Its fields, with their defaults, by Llama's names."""
        return self.model_dump(include=set(Llama.model_fields), exclude_none=True)
