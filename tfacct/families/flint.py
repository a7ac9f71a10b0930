"""Flint: Qwen3's attention with sinks, rotated in windows alone; dense layers, then experts beside a shared network."""

from typing import ClassVar

from tfacct.architecture.parts import Attention, Experts, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Switch, UpTo
from tfacct.families._endings import DECODER
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, SHARED_PATHS, check_active, with_experts
from tfacct.families._layers import LayerTypes, windows
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2026-10"


class Config(LlamaLike):
    """`FlintConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 150144
    hidden_size: Count = 2048
    intermediate_size: Count = 6144
    num_hidden_layers: Layers = 49
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 4
    head_dim: Count = 128
    max_position_embeddings: Count = 262144
    attention_bias: Switch = False
    sliding_window: Window = 513
    layer_types: LayerTypes | None = None
    moe_intermediate_size: Count = 512
    shared_expert_intermediate_size: Count = 1024
    num_experts: Count = 256
    num_experts_per_tok: Count = 6
    decoder_sparse_step: Count = 1
    mlp_only_layers: list[UpTo] | None = None

    stems: ClassVar = ("Flint",)
    in_files: ClassVar = ((r"\.softmax_offset$", ".sinks"),)
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **ROUTED_PATHS,
        **{ours: theirs for ours, theirs in SHARED_PATHS.items() if not ours.endswith("shared_gate")},
        **QK_NORM_PATHS,
        "blocks.*.attn.sinks": "model.layers.*.self_attn",
    }
    hf_tensors: ClassVar = {**ROUTED_TENSORS, "blocks.*.attn.sinks.weight": "model.layers.*.self_attn.sinks"}

    def of_window(self, window: int | None) -> Attention:
        """Attention of a layer with this window; without one it is not rotated."""
        biased = self.attention_bias
        own = {"qkv_bias": biased, "out_bias": biased, "qk_norm": QKNorm(self.rms_norm_eps), "sinks": True}
        return self.attention(window=window, **own, **({} if window else {"rotary": None}))

    def slides(self, number: int) -> bool:
        """True if a layer has the window, where layer_types does not say."""
        return number >= 2 and number % 4 != 1 and number != self.num_hidden_layers - 1

    def architecture(self) -> Transformer:
        """Two dense layers in front; windows in most layers."""
        check_active(self.num_experts_per_tok, self.num_experts, ("num_experts_per_tok", "num_experts"))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            shared=self.shared_expert_intermediate_size,
            activation=self.activation,
        )
        layers, dense = self.num_hidden_layers, [0, 1] if self.mlp_only_layers is None else self.mlp_only_layers
        slides = windows(self.layer_types, layers, self.sliding_window, self.slides)
        per_layer = list(zip(slides, with_experts(layers, self.decoder_sparse_step, dense), strict=True))
        kinds = {
            (window, routed): self.block(self.of_window(window), experts if routed else self.feed_forward())
            for window, routed in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[kind] for kind in per_layer])
