"""A.X K1: DeepSeek-V3's blocks, with a norm behind the experts."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, UpTo
from tfacct.families._endings import CLASSIFYING
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, LayerNetworks, beside_shared, dense_or_sparse
from tfacct.families._latent_like import LatentLike

RELEASED = "2026-01"


class Config(LatentLike):
    """`AXK1Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 163840
    hidden_size: Count = 7168
    intermediate_size: Count = 18432
    num_hidden_layers: Layers = 61
    num_attention_heads: Count = 64
    num_key_value_heads: Count = 64
    max_position_embeddings: Count = 32768
    q_lora_rank: Count = 1536
    moe_intermediate_size: Count = 2048
    n_routed_experts: Count = 192
    n_shared_experts: Count = 1
    num_experts_per_tok: Count = 8
    mlp_layer_types: LayerNetworks | None = None
    first_k_dense_replace: UpTo = 1
    moe_layer_freq: Count = 1

    stems: ClassVar = ("AXK1",)
    in_files: ClassVar = ((r"(?<!mlp)\.post_mlp_layernorm\.", ".mlp.post_mlp_layernorm."),)
    aliases: ClassVar = {"num_local_experts": "n_routed_experts"}
    harmless: ClassVar = LatentLike.harmless | frozenset(
        "n_group topk_group routed_scaling_factor topk_method scoring_func aux_loss_alpha seq_aux ep_size".split()
    )
    heads: ClassVar = CLASSIFYING
    hf_paths: ClassVar = {
        **LatentLike.hf_paths,
        **BESIDE_PATHS,
        "blocks.*.mlp_post_norm": "model.layers.*.mlp.post_mlp_layernorm",
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def architecture(self) -> Transformer:
        """Blocks of latent attention, with experts or dense."""
        layers, first, every = self.num_hidden_layers, self.first_k_dense_replace, self.moe_layer_freq
        routed = [number >= first and number % every == 0 for number in range(layers)]
        if self.mlp_layer_types is not None:
            routed = dense_or_sparse(self.mlp_layer_types, layers)
        attention = self.latent()
        plain = self.block(attention, beside_shared(self, self.n_routed_experts, self.n_shared_experts))
        before, network = plain.sublayers
        sparse = Block((before, replace(network, post_norm=self.norm())), plain.order)
        kinds = {True: sparse, False: self.block(attention, self.feed_forward())}
        return self.decoder([kinds[some] for some in routed])
