"""Solar Open: Llama's attention, and GLM-4.5's experts beside a shared network in every layer."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fraction, Layers, Real, Switch, turned_part
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, beside_shared
from tfacct.families._part_rotated import PartRotated

RELEASED = "2026-01"


class Config(PartRotated):
    """`SolarOpenConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 196608
    hidden_size: Count = 4096
    intermediate_size: Count = 10240
    num_hidden_layers: Layers = 48
    num_attention_heads: Count = 64
    num_key_value_heads: Count = 8
    head_dim: Count = 128
    max_position_embeddings: Count = 131072
    partial_rotary_factor: Fraction = 1.0
    attention_bias: Switch = False
    rope_theta: Real | None = 1_000_000.0
    rms_norm_eps: Real = 1e-5
    moe_intermediate_size: Count = 1280
    n_routed_experts: Count = 128
    n_shared_experts: Count = 1
    num_experts_per_tok: Count = 8

    stems: ClassVar = ("SolarOpen",)
    uncounted: ClassVar = PartRotated.uncounted | {"intermediate_size"}
    aliases: ClassVar = {"num_local_experts": "n_routed_experts"}
    harmless: ClassVar = frozenset({"n_group", "topk_group", "routed_scaling_factor"})
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {**PartRotated.hf_paths, **BESIDE_PATHS}
    hf_tensors: ClassVar = ROUTED_TENSORS

    def architecture(self) -> Transformer:
        """Experts in every layer. Raises ConfigError."""
        attention = self.attention(qkv_bias=self.attention_bias)
        if attention.rope_dim != self.head_dim:  # its class turns whole heads, and fails where it is told otherwise
            raise self.refused("partial_rotary_factor", turned_part(self.partial_rotary_factor, self.rope_parameters))
        attention = replace(attention, rope_dim=None)
        experts = beside_shared(self, self.n_routed_experts, self.n_shared_experts)
        return self.decoder(self.equal_blocks(self.block(attention, experts)))
