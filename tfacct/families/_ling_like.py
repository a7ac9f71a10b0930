"""Shared by Ling's models with lightning attention in most layers: their fields, and which layers attend."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, LatentAttention, LightningAttention
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fraction, Layers, Real, Switch, UpTo, even, share, turned_part
from tfacct.families._endings import DECODER
from tfacct.families._experts import beside_shared
from tfacct.families._llama_like import LlamaLike

FLA_CHUNK = 64
"""Tokens of a chunk in flash-linear-attention's kernels."""


class LingLike(LlamaLike):
    """The fields of the makers' own code, with its defaults, sizes too."""

    vocab_size: Count = 157184
    hidden_size: Count = 2048
    intermediate_size: Count = 5120
    num_hidden_layers: Layers = 20
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 4
    head_dim: Count = 128
    max_position_embeddings: Count = 32768
    rope_theta: Real | None = 600_000.0
    partial_rotary_factor: Fraction = 0.5
    use_qk_norm: Switch = True
    use_qkv_bias: Switch = False
    use_bias: Switch = False
    layer_group_size: Count = 5
    group_norm_size: Count = 4
    linear_silu: Switch = False
    moe_intermediate_size: Count = 512
    num_experts: Count = 256
    num_experts_per_tok: Count = 8
    num_shared_experts: UpTo = 1
    moe_shared_expert_intermediate_size: Count | None = None
    first_k_dense_replace: UpTo = 1

    heads: ClassVar = DECODER
    uncounted: ClassVar = LlamaLike.uncounted | frozenset(
        {"group_norm_size", "linear_silu", "moe_shared_expert_intermediate_size"}
    )
    harmless: ClassVar = frozenset(
        """
        n_group topk_group routed_scaling_factor score_function scoring_func seq_aux topk_method router_dtype
        moe_router_enable_expert_bias moe_router_enable_shared_expert moe_router_enable_routed_scaling
        use_rmsnorm embedding_dropout output_dropout norm_topk_prob
        norm_head
        max_window_layers router_type rope_traditional
        """.split()
    )

    @property
    def full(self) -> list[bool]:
        """Booleans, one for each layer: whether it attends."""
        layers, group = self.num_hidden_layers, self.layer_group_size
        return [(number + 1) % group == 0 or number >= layers // group * group for number in range(layers)]

    def class_cannot(self) -> str | None:
        """Reason why the class of layers that attend cannot be asked."""
        if not all(self.full):
            return "it has no lightning attention: only where every layer attends are its layers those of this model"
        return "its last product of attention has no bias" if self.use_bias else None

    def class_fields(self) -> Mapping[str, Any]:
        """Its fields, with their defaults, by the names of that class."""
        own = self.model_dump(exclude_none=True)
        shared = {"n_routed_experts": self.num_experts, "n_shared_experts": self.num_shared_experts}
        return {**own, **shared, "attention_bias": self.use_qkv_bias}

    def lightning(self) -> LightningAttention:
        """The mixer of a layer that does not attend. Raises ConfigError."""
        share(self.num_attention_heads * self.head_dim, self.group_norm_size, "heads · head_dim by group_norm_size")
        if self.linear_silu:
            raise self.refused("linear_silu", True)
        turned = int(self.head_dim * turned_part(self.partial_rotary_factor, self.rope_parameters))
        return LightningAttention(
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            head_dim=self.head_dim,
            activation=None,
            eps=self.rms_norm_eps,
            chunk=FLA_CHUNK,
            qk_norm=self.use_qk_norm,
            rotary=self.rotary(),
            rope_dim=even(turned, "partial_rotary_factor · head_dim ="),
            groups=self.group_norm_size,
            bias=self.use_qkv_bias,
            out_bias=self.use_bias,
            simple=True,
        )

    def attending(self) -> Attention | LatentAttention:
        """Attention of the other layers."""
        raise NotImplementedError

    def architecture(self) -> Transformer:
        """Lightning attention and another, dense layers in front, experts behind. Raises ConfigError."""
        wide = self.moe_shared_expert_intermediate_size
        if wide not in (None, self.moe_intermediate_size) and self.num_shared_experts:
            raise self.refused("moe_shared_expert_intermediate_size", wide)
        networks: tuple[Any, ...] = (
            self.feed_forward(),
            beside_shared(self, self.num_experts, self.num_shared_experts),
        )
        full, routed = self.full, [number >= self.first_k_dense_replace for number in range(self.num_hidden_layers)]
        mixers: dict[bool, Any] = {attends: self.attending() if attends else self.lightning() for attends in {*full}}
        made: dict[tuple[bool, bool], Block] = {
            (attends, some): Block.of(mixers[attends], networks[some], norm=self.norm())
            for attends, some in {*zip(full, routed, strict=True)}
        }
        return self.decoder([made[kinds] for kinds in zip(full, routed, strict=True)])
