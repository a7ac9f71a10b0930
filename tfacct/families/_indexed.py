"""Shared by the families whose latent attention reads the keys that an indexer chooses."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Switch, UpTo
from tfacct.families._endings import DECODER, Ending
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, LayerNetworks, beside_shared, dense_or_sparse
from tfacct.families._latent_like import LatentLike
from tfacct.families._layers import LayerTypes

INDEXED = ("indexed_attention", "deepseek_sparse_attention")
"""Words for the one kind of layer that there is, the class's first."""


class Indexed(LatentLike):
    """The fields that DeepSeek-V3.2 and GLM-5 spell alike."""

    moe_intermediate_size: Count = 2048
    n_routed_experts: Count = 256
    n_shared_experts: UpTo = 1
    num_experts_per_tok: Count = 8
    first_k_dense_replace: UpTo = 3
    mlp_layer_types: LayerNetworks | None = None
    layer_types: LayerTypes | None = None
    mlp_bias: Switch = False
    moe_layer_freq: Count = 1
    index_topk: Count = 2048
    index_head_dim: Count = 128
    index_n_heads: Count

    uncounted: ClassVar = LatentLike.uncounted | {
        "index_topk",
        "layer_types",
        "mlp_bias",
        "moe_layer_freq",
    }
    aliases: ClassVar = {"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"}
    harmless: ClassVar = LatentLike.harmless | frozenset(
        """
        n_group topk_group topk_method routed_scaling_factor scoring_func aux_loss_alpha seq_aux ep_size
        indexer_rope_interleave index_share_for_mtp_iteration moe_router_dtype
        """.split()
    )
    heads: ClassVar[Mapping[str, Ending]] = DECODER
    understood: ClassVar[Mapping[str, object]] = {"mlp_bias": False, "moe_layer_freq": 1}
    kept_wide: ClassVar[tuple[str, ...]] = ("indexer.weights_proj",)
    hf_paths: ClassVar = {
        **LatentLike.hf_paths,
        **BESIDE_PATHS,
        "blocks.*.attn.indexer.q_proj": "model.layers.*.self_attn.indexer.wq_b",
        "blocks.*.attn.indexer.k_proj": "model.layers.*.self_attn.indexer.wk",
        "blocks.*.attn.indexer.k_norm": "model.layers.*.self_attn.indexer.k_norm",
        "blocks.*.attn.indexer.weights_proj": "model.layers.*.self_attn.indexer.weights_proj",
        "blocks.*.attn.indexer.scores": "model.layers.*.self_attn.indexer",
        "blocks.*.attn.indexer.sum": "model.layers.*.self_attn.indexer",
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def choosing(self, **own: Any) -> LatentAttention:
        """Latent attention with an indexer."""
        return replace(
            self.latent(),
            index_heads=self.index_n_heads,
            index_dim=self.index_head_dim,
            index_top=self.index_topk,
            **own,
        )

    def routed(self) -> list[bool]:
        """Booleans, one for each layer: whether it has experts. Raises ConfigError."""
        if self.mlp_layer_types is None:
            return [number >= self.first_k_dense_replace for number in range(self.num_hidden_layers)]
        return dense_or_sparse(self.mlp_layer_types, self.num_hidden_layers)

    def refuse(self) -> None:
        """Refuse what the class does not have. Raises ConfigError."""
        for name, only in self.understood.items():
            if getattr(self, name) != only:
                raise self.refused(name, getattr(self, name))
        of_one_kind = self.layer_types is None or any(
            self.layer_types == [word] * self.num_hidden_layers for word in INDEXED
        )
        if not of_one_kind:
            raise self.refused("layer_types", self.layer_types)
        if self.index_head_dim <= self.qk_rope_head_dim:
            raise ConfigError(
                f"index_head_dim = {self.index_head_dim:,} must be more than"
                f" qk_rope_head_dim = {self.qk_rope_head_dim:,}, the part of it that is rotated"
            )

    def indexed(self, attentions: list[LatentAttention]) -> Transformer:
        """Blocks of these, with experts or dense."""
        experts, dense = beside_shared(self, self.n_routed_experts, self.n_shared_experts), self.feed_forward()
        per_layer = list(zip(attentions, self.routed(), strict=True))
        made: dict[tuple[int, bool], Block] = {}
        for attention, routed in per_layer:
            if (id(attention), routed) not in made:
                made[id(attention), routed] = self.block(attention, experts if routed else dense)
        return self.decoder([made[id(attention), routed] for attention, routed in per_layer])
