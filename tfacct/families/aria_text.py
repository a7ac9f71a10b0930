"""Aria's language model: Llama's attention, experts beside a shared network in every layer."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.parts import Experts
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Switch, UpTo
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._llama_like import OWN_SHARE, LlamaLike

RELEASED = "2024-10"


class Config(LlamaLike):
    """`AriaTextConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    vocab_size: Count = 32000
    hidden_size: Count = 4096
    intermediate_size: Count = 4096
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 2048
    attention_bias: Switch = False
    mlp_bias: Switch = False
    moe_num_experts: Count = 8
    moe_topk: Count = 2
    moe_num_shared_experts: UpTo = 2

    stems: ClassVar = ("AriaText",)
    in_files: ClassVar = (
        (r"\.experts\.fc1\.weight$", ".experts.gate_up_proj"),
        (r"\.experts\.fc2\.weight$", ".experts.down_proj"),
    )
    heads: ClassVar = DECODER
    nulls: ClassVar = OWN_SHARE
    inputs_first: ClassVar = ("blocks.*.mlp.experts.",)
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **BESIDE_PATHS,
        "blocks.*.mlp.router": "model.layers.*.mlp.router",
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def architecture(self) -> Transformer:
        """Experts in every layer."""
        check_active(self.moe_topk, self.moe_num_experts, ("moe_topk", "moe_num_experts"))
        if not self.moe_num_shared_experts and self.mlp_bias:
            raise ConfigError("mlp_bias = true with moe_num_shared_experts = 0: biases on a network of width 0")
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.moe_num_experts,
            active=self.moe_topk,
            width=self.intermediate_size,
            shared=self.moe_num_shared_experts * self.intermediate_size or None,
            shared_bias=self.mlp_bias,
            activation=self.activation,
        )
        attention = self.attention(qkv_bias=self.attention_bias, out_bias=self.attention_bias)
        return self.decoder(self.equal_blocks(self.block(attention, experts)))
