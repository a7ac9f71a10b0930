"""OLMoE: experts in every layer; norms over all queries and all keys together."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.parts import Experts, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike

RELEASED = "2024-09"


class Config(LlamaLike):
    """`OlmoeConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    vocab_size: Count = 50304
    hidden_size: Count = 2048
    intermediate_size: Count = 2048
    num_hidden_layers: Layers = 16
    num_attention_heads: Count = 16
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 4096
    attention_bias: Switch = False
    clip_qkv: Real | None = None
    rms_norm_eps: Real = 1e-5
    num_experts: Count = 64
    num_experts_per_tok: Count = 8

    stems: ClassVar = ("Olmoe",)
    heads: ClassVar = DECODER
    uncounted: ClassVar = LlamaLike.uncounted | {"clip_qkv"}
    aliases: ClassVar = {"num_local_experts": "num_experts"}
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **ROUTED_PATHS,
        **QK_NORM_PATHS,
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections."""
        check_active(self.num_experts_per_tok, self.num_experts, ("num_experts_per_tok", "num_experts"))
        self.whole_heads()
        attention = self.attention(
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            qk_norm=QKNorm(self.rms_norm_eps, together=True),
            clip=self.clip_qkv,
        )
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            activation=self.activation,
        )
        return self.decoder(self.equal_blocks(self.block(attention, experts)))
