"""GLM-4.7-Flash: DeepSeek-V3's latent attention; layers with experts beside a shared network, and dense ones."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, UpTo
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, LayerNetworks, beside_shared, dense_or_sparse
from tfacct.families._latent_like import LatentLike

RELEASED = "2026-01"


class Config(LatentLike):
    """`Glm4MoeLiteConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 154880
    hidden_size: Count = 2048
    intermediate_size: Count = 10240
    num_hidden_layers: Layers = 47
    num_attention_heads: Count = 20
    num_key_value_heads: Count = 20
    max_position_embeddings: Count = 202752
    rms_norm_eps: Real = 1e-5
    q_lora_rank: Count | None = 768
    qk_nope_head_dim: Count = 192
    v_head_dim: Count = 256
    moe_intermediate_size: Count = 1536
    n_routed_experts: Count = 64
    n_shared_experts: Count = 1
    num_experts_per_tok: Count = 4
    mlp_layer_types: LayerNetworks | None = None
    first_k_dense_replace: UpTo | None = None

    stems: ClassVar = ("Glm4MoeLite",)
    uncounted: ClassVar = LatentLike.uncounted | {"first_k_dense_replace"}
    aliases: ClassVar = {"num_local_experts": "n_routed_experts", "head_dim": "qk_rope_head_dim"}
    harmless: ClassVar = LatentLike.harmless | frozenset("n_group topk_group routed_scaling_factor topk_method".split())
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {**LatentLike.hf_paths, **BESIDE_PATHS}
    hf_tensors: ClassVar = ROUTED_TENSORS

    def architecture(self) -> Transformer:
        """Blocks of latent attention, with experts or dense."""
        routed = dense_or_sparse(self.mlp_layer_types, self.num_hidden_layers)
        dense = self.first_k_dense_replace
        if dense is not None and routed != [number >= dense for number in range(self.num_hidden_layers)]:
            raise self.refused("first_k_dense_replace", dense)
        attention = self.latent()
        experts = beside_shared(self, self.n_routed_experts, self.n_shared_experts)
        kinds = {True: self.block(attention, experts), False: self.block(attention, self.feed_forward())}
        return self.decoder([kinds[some] for some in routed])
