"""Kolibri 1: EXAONE 4's attention, norms around every sublayer; experts beside a shared network in every layer."""

from typing import ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Experts, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._layers import LayerTypes, windows
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2026-10"


class Config(LlamaLike):
    """`Kolibri1Config`, with its class's defaults, sizes too. It has no intermediate_size."""

    vocab_size: Count = 128000
    hidden_size: Count = 2560
    intermediate_size: Count | None = None  # type: ignore[assignment]
    num_hidden_layers: Layers = 50
    num_attention_heads: Count = 48
    num_key_value_heads: Count = 4
    head_dim: Count = 128
    max_position_embeddings: Count = 262144
    sliding_window: Window = 513
    layer_types: LayerTypes | None = None
    moe_intermediate_size: Count = 512
    shared_expert_intermediate_size: Count = 512
    num_experts: Count = 384
    num_experts_per_tok: Count = 6

    stems: ClassVar = ("Kolibri1",)
    in_files: ClassVar = (
        (r"\.post_attn_norm\.", ".post_self_attn_layernorm."),
        (r"\.post_ffn_norm\.", ".post_mlp_layernorm."),
        (r"\.moe\.router\.expert_bias$", ".mlp.gate.e_score_correction_bias"),
    )
    uncounted: ClassVar = LlamaLike.uncounted | {"intermediate_size"}
    aliases: ClassVar = {"num_local_experts": "num_experts"}
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **BESIDE_PATHS,
        **QK_NORM_PATHS,
        "blocks.*.attn_post_norm": "model.layers.*.post_self_attn_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_mlp_layernorm",
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def of_window(self, window: int | None) -> Attention:
        """Attention of a layer with this window; without one it is not rotated."""
        return self.attention(window=window, qk_norm=QKNorm(self.rms_norm_eps), **({} if window else {"rotary": None}))

    def architecture(self) -> Transformer:
        """Windows in all layers but every fifth, which is not rotated."""
        check_active(self.num_experts_per_tok, self.num_experts, ("num_experts_per_tok", "num_experts"))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            shared=self.shared_expert_intermediate_size,
            activation=self.activation,
        )
        per_layer = windows(
            self.layer_types, self.num_hidden_layers, self.sliding_window, lambda number: (number + 1) % 5 != 0
        )
        kinds = {
            window: Block.of(self.of_window(window), experts, norm=self.norm(), post_norm=self.norm())
            for window in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[window] for window in per_layer])
