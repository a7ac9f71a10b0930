"""Ling 3.0: DeltaNet with a decay for every channel in five layers of six, gated latent attention in the sixth; dense
layers first, then experts beside a shared network."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import DeltaNet, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch, UpTo
from tfacct.families._delta_like import FORGET_IN_FILES, KDA_TENSORS, OF_CHANNELS, DeltaLike, delta_paths
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, LayerNetworks, beside_shared, dense_or_sparse
from tfacct.families._latent_like import LatentLike
from tfacct.families._layers import LayerTypes
from tfacct.ledger.workload import Workload

RELEASED = "2026-08"


class Config(LatentLike, DeltaLike):
    """`BailingHybridConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 157184
    hidden_size: Count = 2560
    intermediate_size: Count = 6144
    num_hidden_layers: Layers = 42
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 32
    head_dim: Count = 128
    max_position_embeddings: Count = 262144
    rope_theta: Real | None = 6_000_000.0
    q_lora_rank: Count | None = None
    moe_intermediate_size: Count = 768
    num_local_experts: Count = 512
    num_experts_per_tok: Count = 8
    n_shared_experts: Count = 1
    first_k_dense_replace: UpTo = 2
    mlp_layer_types: LayerNetworks | None = None
    layer_types: LayerTypes | None = None
    layer_group_size: Count = 6
    short_conv_kernel_size: Count = 4
    kda_safe_gate: Switch = True
    kda_lower_bound: float = -5.0
    linear_num_heads: Count | None = None
    linear_head_dim: Count | None = None
    linear_conv_kernel_dim: Count | None = None

    uncounted: ClassVar = (LatentLike.uncounted - {"head_dim"}) | {"kda_safe_gate", "kda_lower_bound"}
    fixed: ClassVar = DeltaLike.fixed | {"Gd"}
    stems: ClassVar = ("BailingHybrid", "BailingMoeV3")
    in_files: ClassVar = (
        (r"^model\.word_embeddings\.", "model.embed_tokens."),
        (r"\.attention\.", ".self_attn."),
        FORGET_IN_FILES,
        (r"\.self_attn\.dense\.", ".self_attn.o_proj."),
    )
    heads: ClassVar = {name: DECODER[name] for name in ("ForCausalLM", "Model")}
    aliases: ClassVar[Mapping[str, str]] = {
        "num_experts": "num_local_experts",
        "n_routed_experts": "num_local_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "num_shared_experts": "n_shared_experts",
        "model_max_length": "max_position_embeddings",
    }
    harmless: ClassVar = LatentLike.harmless | frozenset(
        """
        moe_renormalize num_expert_group n_group topk_group routed_scaling_factor
        """.split()
    )
    hf_paths: ClassVar = {
        **LatentLike.hf_paths,
        **BESIDE_PATHS,
        "blocks.*.attn.gate_proj": "model.layers.*.self_attn.g_proj",
        **delta_paths(
            "self_attn",
            OF_CHANNELS,
            **{name: name for name in ("q_proj", "k_proj", "v_proj")},
            gate_proj="g_proj",
            rate_proj="b_proj",
            decay_proj="forget_gate.f_proj",
            out_norm="o_norm",
            out_proj="o_proj",
        ),
    }
    hf_tensors: ClassVar = {**ROUTED_TENSORS, **KDA_TENSORS}

    @property
    def kernel(self) -> int:
        """Tokens that the convolution sees."""
        return self.linear_conv_kernel_dim or self.short_conv_kernel_size

    def delta(self) -> DeltaNet:
        """DeltaNet with a decay for each channel of a key, made by one product."""
        heads, size = self.linear_num_heads or self.num_attention_heads, self.linear_head_dim or self.head_dim
        return self.deltas(
            heads,
            heads,
            key_dim=size,
            value_dim=size,
            whole=True,
            floor=self.kda_lower_bound if self.kda_safe_gate else None,
            kernel=self.kernel,
            gate="sigmoid",
            eps=self.rms_norm_eps,
        )

    def attending(self) -> LatentAttention:
        """Latent attention with a gate for each head."""
        return replace(self.latent(), gated=True)

    def architecture(self) -> Transformer:
        """Dense layers and layers of experts, as mlp_layer_types says, or else the first ones dense."""
        for name, plain in (("q_lora_rank", None), ("tie_word_embeddings", False), ("attention_bias", False)):
            if getattr(self, name) != plain:
                raise self.refused(name, getattr(self, name))
        layers, dense = self.num_hidden_layers, self.feed_forward()
        experts = beside_shared(self, self.num_local_experts, self.n_shared_experts)
        routed = [number >= self.first_k_dense_replace for number in range(layers)]
        if self.mlp_layer_types is not None:
            routed = dense_or_sparse(self.mlp_layer_types, layers)
        full = [(number + 1) % self.layer_group_size == 0 for number in range(layers)]
        kinds = self.layer_kinds(self.layer_types, full)
        return self.of_two_kinds(kinds, [experts if some else dense for some in routed])

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked."""
        return LatentLike.class_cannot(self) or DeltaLike.class_cannot(self)

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return DeltaLike.class_runs_more(self, work)
