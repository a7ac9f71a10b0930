"""Shared by DeepSeek's families: latent attention, dense layers first, then experts beside a shared network."""

from typing import ClassVar

from tfacct.architecture.parts import Experts
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, UpTo
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._latent_like import LatentLike


class DeepseekLike(LatentLike):
    """The fields that DeepSeek-V2 and V3 spell alike."""

    moe_intermediate_size: Count
    n_routed_experts: Count
    n_shared_experts: UpTo
    num_experts_per_tok: Count
    first_k_dense_replace: UpTo
    moe_layer_freq: Count = 1

    uncounted: ClassVar = LatentLike.uncounted | {"moe_layer_freq"}
    aliases: ClassVar = {"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"}
    harmless: ClassVar = LatentLike.harmless | frozenset(
        """
        n_group topk_group topk_method routed_scaling_factor scoring_func aux_loss_alpha seq_aux ep_size
        """.split()
    )
    hf_tensors: ClassVar = ROUTED_TENSORS
    hf_paths: ClassVar = {
        **LatentLike.hf_paths,
        **ROUTED_PATHS,
        **{
            f"blocks.*.mlp.shared.{name}": f"model.layers.*.mlp.shared_experts.{name}"
            for name in ("gate_proj", "up_proj", "down_proj")
        },
    }

    @property
    def biased_networks(self) -> bool:
        """True if dense and shared networks have biases."""
        return False

    def architecture(self) -> Transformer:
        """The first first_k_dense_replace layers are dense; a shared network as wide as n_shared_experts experts."""
        check_active(self.num_experts_per_tok, self.n_routed_experts, ("num_experts_per_tok", "n_routed_experts"))
        if self.moe_layer_freq != 1:
            raise self.refused("moe_layer_freq", self.moe_layer_freq)
        attention = self.latent()
        if self.biased_networks and not self.n_shared_experts:
            raise ConfigError("mlp_bias = true with n_shared_experts = 0: biases on a network of width 0")
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.n_routed_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            shared=self.n_shared_experts * self.moe_intermediate_size or None,
            shared_bias=self.biased_networks,
            activation=self.activation,
        )
        dense = min(self.first_k_dense_replace, self.num_hidden_layers)
        blocks = [self.block(attention, self.feed_forward(bias=self.biased_networks))] * dense
        return self.decoder([*blocks, *[self.block(attention, experts)] * (self.num_hidden_layers - dense)])
