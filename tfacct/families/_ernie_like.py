"""Shared by ERNIE 4.5's models with experts, of text alone or of images too."""

from typing import ClassVar

from tfacct.architecture.parts import Rotary
from tfacct.families._base import Count, Layers, Real, Switch, UpTo
from tfacct.families._llama_like import LlamaLike


class ErnieExperts(LlamaLike):
    """The fields that their classes spell alike, with their defaults."""

    vocab_size: Count = 103424
    hidden_size: Count = 2560
    intermediate_size: Count = 12288
    num_hidden_layers: Layers = 28
    num_attention_heads: Count = 20
    num_key_value_heads: Count = 4
    max_position_embeddings: Count = 131072
    tie_word_embeddings: Switch = True
    use_bias: Switch = False
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 500_000.0
    moe_k: Count = 6
    moe_num_experts: Count = 64
    moe_num_shared_experts: UpTo = 2

    aliases: ClassVar = {"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"}

    def rotary(self) -> Rotary:
        """Neighbouring elements turn together, as those of text do whose three positions are one."""
        return LlamaLike.rotary(self)._replace(pairs="neighbours")
