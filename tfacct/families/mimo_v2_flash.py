"""MiMo-V2-Flash: values of a size of their own; windowed layers with twice the key heads and sinks; experts."""

from typing import ClassVar

from tfacct.architecture.parts import Attention, Experts, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fields, Layers, Real, Switch, UpTo, even, share, turned_part
from tfacct.families._endings import DECODER
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, LayerNetworks, check_active, dense_or_sparse
from tfacct.families._layers import FULL, SLIDING, Flags, LayerTypes, angles_of, windows
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2025-12"

ROPE = {
    FULL: {"rope_type": "default", "rope_theta": 5_000_000.0, "partial_rotary_factor": 0.334},
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.334},
}
"""The class's angles where the config has none."""


class Config(LlamaLike):
    """`MiMoV2FlashConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 152576
    hidden_size: Count = 4096
    intermediate_size: Count = 16384
    num_hidden_layers: Layers = 48
    num_attention_heads: Count = 64
    num_key_value_heads: Count = 4
    head_dim: Count = 192
    v_head_dim: Count = 128
    max_position_embeddings: Count = 131072
    rms_norm_eps: Real = 1e-5
    rope_parameters: Fields | None = None
    attention_bias: Switch = False
    attention_value_scale: Real | None = 0.707
    moe_intermediate_size: Count = 2048
    n_routed_experts: Count = 256
    num_experts_per_tok: Count = 8
    n_shared_experts: UpTo | None = None
    sliding_window: Window = 129
    sliding_window_size: Count | None = None
    attention_chunk_size: Count | None = None
    layer_types: LayerTypes | None = None
    mlp_layer_types: LayerNetworks | None = None
    hybrid_layer_pattern: Flags | None = None
    moe_layer_freq: Flags | None = None
    swa_num_attention_heads: Count | None = None
    swa_num_key_value_heads: Count | None = None
    swa_head_dim: Count | None = None
    swa_v_head_dim: Count | None = None
    add_swa_attention_sink_bias: Switch = True
    add_full_attention_sink_bias: Switch = False

    stems: ClassVar = ("MiMoV2Flash",)
    in_files: ClassVar = ((r"\.attention_sink_bias$", ".sinks"),)
    uncounted: ClassVar = LlamaLike.uncounted | {
        "add_full_attention_sink_bias",
        "add_swa_attention_sink_bias",
        "attention_chunk_size",
        "attention_value_scale",
        "hybrid_layer_pattern",
        "moe_layer_freq",
        "n_shared_experts",
        "swa_head_dim",
        "swa_num_attention_heads",
        "swa_num_key_value_heads",
        "swa_v_head_dim",
    }
    aliases: ClassVar = {"num_local_experts": "n_routed_experts"}
    harmless: ClassVar = frozenset(
        """
        n_group topk_group topk_method routed_scaling_factor scoring_func swa_rope_theta attention_projection_layout
        hybrid_block_size layernorm_epsilon
        """.split()
    )
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **ROUTED_PATHS,
        "blocks.*.attn.sinks": "model.layers.*.self_attn",
    }
    hf_tensors: ClassVar = {**ROUTED_TENSORS, "blocks.*.attn.sinks.weight": "model.layers.*.self_attn.sinks"}

    @property
    def window(self) -> int:
        """The window, the token itself among its keys."""
        return self.sliding_window if self.sliding_window_size is None else self.sliding_window_size + 1

    def of_window(self, window: int | None) -> Attention:
        """Attention of a layer with this window."""
        slides = window is not None
        kv_heads = self.num_key_value_heads * (2 if slides else 1)
        spelled = angles_of(self.rope_parameters, ROPE, window)
        turned = int(self.head_dim * turned_part(0.334, spelled))
        return Attention(
            hidden=self.hidden_size,
            kv_heads=kv_heads,
            group=share(self.num_attention_heads, kv_heads, "num_attention_heads by key/value heads of a layer"),
            head_dim=self.head_dim,
            value_dim=self.v_head_dim,
            value_scale=self.attention_value_scale,
            qkv_bias=self.attention_bias,
            rotary=Rotary(spelled.get("rope_theta") or 10_000.0, spelled),
            rope_dim=even(turned, "partial_rotary_factor · head_dim ="),
            window=window,
            sinks=slides,
        )

    def refuse(self, slides: list[int | None], routed: list[bool]) -> None:
        """Refuse fields that say another model than the class builds. Raises ConfigError."""
        built = {
            "hybrid_layer_pattern": [int(window is not None) for window in slides],
            "moe_layer_freq": [int(some) for some in routed],
            "swa_num_attention_heads": self.num_attention_heads,
            "swa_num_key_value_heads": 2 * self.num_key_value_heads,
            "swa_head_dim": self.head_dim,
            "swa_v_head_dim": self.v_head_dim,
            "n_shared_experts": 0,
            "attention_chunk_size": self.window - 1,
        }
        for name, only in built.items():
            if getattr(self, name) not in (None, only):
                raise self.refused(name, getattr(self, name))
        if not self.add_swa_attention_sink_bias or self.add_full_attention_sink_bias:
            name = (
                "add_full_attention_sink_bias" if self.add_full_attention_sink_bias else "add_swa_attention_sink_bias"
            )
            raise self.refused(name, self.add_full_attention_sink_bias)

    def architecture(self) -> Transformer:
        """Windows in all layers but the first and every sixth; experts in all but the first."""
        check_active(self.num_experts_per_tok, self.n_routed_experts, ("num_experts_per_tok", "n_routed_experts"))
        layers = self.num_hidden_layers
        slides = windows(self.layer_types, layers, self.window, lambda number: number > 0 and (number + 1) % 6 != 0)
        routed = dense_or_sparse(self.mlp_layer_types, layers)
        self.refuse(slides, routed)
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.n_routed_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            activation=self.activation,
        )
        per_layer = list(zip(slides, routed, strict=True))
        kinds = {
            (window, some): self.block(self.of_window(window), experts if some else self.feed_forward())
            for window, some in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[kind] for kind in per_layer])
