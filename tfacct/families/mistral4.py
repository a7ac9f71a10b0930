"""Mistral Small 4's language model: DeepSeek-V3's latent attention and experts; queries grow with their position."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import LatentAttention
from tfacct.families._base import Count, Fields, Layers, UpTo
from tfacct.families._deepseek_like import DeepseekLike
from tfacct.families._endings import CAUSAL_MODEL, LABELLING
from tfacct.families.ministral3 import growth

RELEASED = "2026-03"

ROPE = {
    "type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 128.0,
    "original_max_position_embeddings": 8192,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}
"""The class's angles where the config has none."""
REST = {ending: head for ending, head in LABELLING.items() if head != CAUSAL_MODEL}


class Config(DeepseekLike):
    """`Mistral4Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 131072
    hidden_size: Count = 4096
    intermediate_size: Count = 12288
    num_hidden_layers: Layers = 36
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 1048576
    q_lora_rank: Count | None = 1024
    kv_lora_rank: Count = 256
    qk_nope_head_dim: Count = 64
    moe_intermediate_size: Count = 2048
    n_routed_experts: Count = 128
    n_shared_experts: UpTo = 1
    num_experts_per_tok: Count = 4
    first_k_dense_replace: UpTo = 0
    rope_parameters: Fields | None = ROPE

    stems: ClassVar = ("Mistral4",)
    heads: ClassVar = {"ForCausalLM": replace(CAUSAL_MODEL, auto="AutoModelForImageTextToText"), **REST}

    def latent(self) -> LatentAttention:
        """Latent attention whose queries grow."""
        return replace(DeepseekLike.latent(self), temperature=growth(self.rope_parameters or ROPE))
