"""Mixtral: Mistral's attention, and experts in every layer."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.parts import Experts
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2023-12"


class Config(LlamaLike):
    """`MixtralConfig`, with its class's defaults."""

    intermediate_size: Count = 14336
    num_key_value_heads: Count = 8
    max_position_embeddings: Count = 131072
    sliding_window: Window | None = None
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 1_000_000.0
    num_local_experts: Count = 8
    num_experts_per_tok: Count = 2

    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    }
    stems: ClassVar = ("Mixtral",)
    aliases: ClassVar = {"num_experts": "num_local_experts"}
    hf_paths: ClassVar = {**LlamaLike.hf_paths, **ROUTED_PATHS}
    hf_tensors: ClassVar = ROUTED_TENSORS

    def architecture(self) -> Transformer:
        """No biases; intermediate_size is the width of one expert."""
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_local_experts"))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            activation=self.activation,
        )
        return self.decoder(self.equal_blocks(self.block(self.attention(window=self.sliding_window), experts)))
