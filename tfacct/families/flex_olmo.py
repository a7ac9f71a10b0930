"""FlexOlmo: OLMo 2's attention and norms behind, OLMoE's experts in every layer."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Experts, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike

RELEASED = "2025-07"


class Config(LlamaLike):
    """`FlexOlmoConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    vocab_size: Count = 100352
    hidden_size: Count = 4096
    intermediate_size: Count = 11008
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 4096
    attention_bias: Switch = False
    rope_theta: Real | None = 500_000.0
    rms_norm_eps: Real = 1e-6
    num_experts: Count = 7
    num_experts_per_tok: Count = 5

    stems: ClassVar = ("FlexOlmo",)
    heads: ClassVar = DECODER
    aliases: ClassVar = {"num_local_experts": "num_experts"}
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **ROUTED_PATHS,
        **QK_NORM_PATHS,
        "blocks.*.attn_post_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_feedforward_layernorm",
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections."""
        check_active(self.num_experts_per_tok, self.num_experts, ("num_experts_per_tok", "num_experts"))
        attention = self.attention(
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            qk_norm=QKNorm(self.rms_norm_eps, together=True),
        )
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            activation=self.activation,
        )
        return self.decoder(self.equal_blocks(Block.of(attention, experts, post_norm=self.norm())))
