"""MiniMax-M2: experts in every layer; norms over all queries and all keys; a part of each head rotated."""

from typing import ClassVar

from tfacct.architecture.parts import Experts, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fraction, Layers, Real, even, turned_part
from tfacct.families._endings import DECODER
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._layers import Flags
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike

RELEASED = "2025-10"


class Config(LlamaLike):
    """`MiniMaxM2Config`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    vocab_size: Count = 200064
    hidden_size: Count = 3072
    intermediate_size: Count = 1536
    num_hidden_layers: Layers = 62
    num_attention_heads: Count = 48
    num_key_value_heads: Count = 8
    head_dim: Count = 128
    max_position_embeddings: Count = 196608
    rope_theta: Real | None = 5_000_000.0
    rotary_dim: Count | None = None
    partial_rotary_factor: Fraction | None = None
    num_local_experts: Count = 256
    num_experts_per_tok: Count = 8
    attn_type_list: Flags | None = None

    stems: ClassVar = ("MiniMaxM2",)
    uncounted: ClassVar = LlamaLike.uncounted | {"attn_type_list", "rotary_dim", "partial_rotary_factor"}
    aliases: ClassVar = {"num_experts": "num_local_experts"}
    harmless: ClassVar = frozenset(
        """
        use_qk_norm qk_norm_type scoring_func use_routing_bias
        layernorm_full_attention_beta layernorm_linear_attention_beta layernorm_mlp_beta mlp_intermediate_size
        shared_moe_mode
        """.split()
    )
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **ROUTED_PATHS,
        **QK_NORM_PATHS,
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def turned(self) -> int:
        """Number of a head's elements that are rotated. Raises ConfigError."""
        given = self.partial_rotary_factor
        if given is None and "partial_rotary_factor" not in (self.rope_parameters or {}):
            turned = self.rotary_dim or self.head_dim
            if turned > self.head_dim:
                raise ConfigError(f"rotary_dim = {turned:,}, but a head has head_dim = {self.head_dim:,} elements")
            return even(turned, "rotary_dim =")
        part = turned_part(given or 1.0, self.rope_parameters)
        return even(int(self.head_dim * part), "partial_rotary_factor · head_dim =")

    def architecture(self) -> Transformer:
        """No biases; experts in every layer."""
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_local_experts"))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            activation=self.activation,
        )
        if self.attn_type_list is not None and not all(self.attn_type_list):  # 0: lightning attention, as before
            raise self.refused("attn_type_list", self.attn_type_list)
        attention = self.attention(rope_dim=self.turned(), qk_norm=QKNorm(self.rms_norm_eps, together=True))
        return self.decoder(self.equal_blocks(self.block(attention, experts)))
