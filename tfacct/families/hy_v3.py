"""Hunyuan 3: Qwen3's attention; a dense layer, then experts beside a shared network."""

from typing import ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Experts, FeedForward, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, LayerNetworks, beside_shared, dense_or_sparse
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike

RELEASED = "2026-04"


class Config(LlamaLike):
    """`HYV3Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 120832
    hidden_size: Count = 4096
    intermediate_size: Count = 13312
    num_hidden_layers: Layers = 80
    num_attention_heads: Count = 64
    num_key_value_heads: Count = 8
    head_dim: Count = 128
    max_position_embeddings: Count = 131072
    attention_bias: Switch = False
    mlp_bias: Switch = False
    rope_theta: Real | None = 11_158_840.0
    rms_norm_eps: Real = 1e-5
    moe_intermediate_size: Count = 1536
    num_experts: Count = 192
    num_experts_per_tok: Count = 8
    num_shared_experts: Count = 1
    mlp_layer_types: LayerNetworks | None = None

    stems: ClassVar = ("HYV3",)
    in_files: ClassVar = ((r"\.mlp\.router\.gate\.", ".mlp.gate."), (r"\.mlp\.shared_mlp\.", ".mlp.shared_experts."))
    uncounted: ClassVar = LlamaLike.uncounted | {"mlp_bias"}
    aliases: ClassVar = {"num_local_experts": "num_experts"}
    harmless: ClassVar = frozenset({"router_scaling_factor", "enable_moe_fp32_combine"})
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **BESIDE_PATHS,
        **QK_NORM_PATHS,
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def architecture(self) -> Transformer:
        """Dense layers by mlp_layer_types."""
        if self.mlp_bias:
            raise self.refused("mlp_bias", True)
        biased, norm = self.attention_bias, QKNorm(self.rms_norm_eps)
        attention = self.attention(qkv_bias=biased, out_bias=biased, qk_norm=norm)
        networks: dict[bool, FeedForward | Experts] = {
            False: self.feed_forward(),
            True: beside_shared(self, self.num_experts, self.num_shared_experts),
        }
        blocks: dict[bool, Block] = {routed: self.block(attention, made) for routed, made in networks.items()}
        sparse = dense_or_sparse(self.mlp_layer_types, self.num_hidden_layers)
        return self.decoder([blocks[routed] for routed in sparse])
