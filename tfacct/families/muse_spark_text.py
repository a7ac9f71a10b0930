"""Muse Spark's language model: Muse Glimmer's, with experts that read a narrower token, and learned weights of what a
sublayer gives and of the stream."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Attention, Experts, FeedForward, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.families import muse_glimmer_text
from tfacct.families._base import Count, Layers, Real, Word
from tfacct.families._endings import inside
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, LayerNetworks, check_active, dense_or_sparse
from tfacct.families._layers import windows

RELEASED = "2026-09"

LAYER = "model.layers.*"


class Config(muse_glimmer_text.Config):
    """`MuseSparkTextConfig`, with its class's defaults, sizes too."""

    hidden_size: Count = 8192
    intermediate_size: Count = 16384
    num_hidden_layers: Layers = 62
    num_attention_heads: Count = 128
    num_key_value_heads: Count = 16
    head_dim: Count = 64
    max_position_embeddings: Count = 1_048_576
    hidden_act: Word = "silu"
    hidden_activation: Word | None = None  # type: ignore[assignment]
    rope_theta: Real | None = 500_000.0
    qk_scale_factor: Real = 5.4730064863875
    output_multiplier: Real = 0.1767766952966369
    moe_intermediate_size: Count = 4096
    num_local_experts: Count = 256
    num_experts_per_tok: Count = 8
    routed_scaling_factor: Real = 1.0
    moe_hidden_size: Count = 4096
    mlp_layer_types: LayerNetworks | None = None
    residual_gate_temperature: Real = 0.3

    stems: ClassVar = ("MuseSpark", "MuseSparkText")
    heads: ClassVar = inside("MuseSparkForConditionalGeneration", "MuseSparkTextModel")
    uncounted: ClassVar = muse_glimmer_text.Config.uncounted | {
        "hidden_act",
        "residual_gate_temperature",
        "routed_scaling_factor",
    }
    aliases: ClassVar = {"num_experts": "num_local_experts"}
    hf_paths: ClassVar = {
        **muse_glimmer_text.Config.hf_paths,
        **ROUTED_PATHS,
        "blocks.*.mlp.latent_down": f"{LAYER}.mlp.pre_expert_proj",
        "blocks.*.mlp.latent_up": f"{LAYER}.mlp.post_expert_proj",
        "blocks.*.mlp.latent_norm": f"{LAYER}.mlp.pre_expert_norm",
        "blocks.*.mlp.result_norm": f"{LAYER}.mlp.experts.post_expert_norm",
    }
    hf_tensors: ClassVar = {
        **ROUTED_TENSORS,
        "blocks.*.attn_add.gate.weight": f"{LAYER}.post_attention_residual_gate.gate",
        "blocks.*.mlp_add.gate.weight": f"{LAYER}.post_feedforward_residual_gate.gate",
    }

    @property
    def activation(self) -> str:
        """hidden_act."""
        return self.hidden_act

    def experts(self) -> Experts:
        """Experts that read narrower tokens. Raises ConfigError."""
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_local_experts"))
        return Experts(
            hidden=self.hidden_size,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            latent=self.moe_hidden_size,
            latent_norms=(self.rms_norm_eps, self.post_norm_eps),
            activation=self.hidden_act,
        )

    def layer(self, attention: Attention, network: Experts | FeedForward) -> Block:
        """Norms before and behind attention and network, and weights of what joins the stream."""
        bare = Norm(hidden=self.hidden_size, kind="rms", eps=self.post_norm_eps, learned="none")
        behind = Norm(hidden=self.hidden_size, kind="rms", eps=self.post_norm_eps, less_one=True, scales_first=True)
        weighed = self.residual_gate_temperature
        return Block(
            (
                Sublayer(attention, self.norm(), bare, weighed=weighed),
                Sublayer(network, self.norm(), behind, weighed=weighed),
            )
        )

    def architecture(self) -> Transformer:
        """Windows, rotation and experts as the lists say."""
        if self.hidden_activation is not None:
            raise self.refused("hidden_activation", self.hidden_activation)
        if self.tie_word_embeddings:  # the class has a head of its own, whatever the config says
            raise self.refused("tie_word_embeddings", True)
        layers = self.num_hidden_layers
        networks: dict[bool, Experts | FeedForward] = {True: self.experts(), False: self.feed_forward()}
        seen = windows(self.layer_types, layers, self.sliding_window, lambda number: not self.seldom(number))
        given = self.mlp_layer_types
        routed = [True] * layers if given is None else dense_or_sparse(given, layers)
        per_layer = list(zip(seen, self.turned(), routed, strict=True))
        made = {
            (window, turned, one): self.layer(self.attending(window, turned), networks[one])
            for window, turned, one in dict.fromkeys(per_layer)
        }
        return self.decoder([made[kind] for kind in per_layer], **self.ends())

    def attending(self, window: int | None, rotated: bool) -> Attention:
        """Attention with a norm of what each head read."""
        return replace(super().attending(window, rotated), head_norm=self.rms_norm_eps)
