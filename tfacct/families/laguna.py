"""Laguna: gated attention with query heads of each layer's own; a dense layer, then experts beside a shared network."""

from typing import Annotated, ClassVar

from pydantic_core import core_schema

from tfacct.architecture.parts import Attention, Experts, QKNorm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Checked, Count, Fields, Layers, Switch, UpTo, Word, even, share, turned_part
from tfacct.families._endings import DECODER
from tfacct.families._experts import (
    BESIDE_PATHS,
    CHOICE,
    ROUTED_TENSORS,
    LayerNetworks,
    check_active,
    dense_or_sparse,
)
from tfacct.families._layers import FULL, SLIDING, LayerTypes, angles_of, one_each, windows
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2026-04"

ROPE = {
    FULL: {"rope_type": "default", "rope_theta": 500_000.0, "partial_rotary_factor": 0.5},
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
}
"""The class's angles where the config has none."""
Gating = Annotated[
    bool | str, Checked(core_schema.union_schema([core_schema.bool_schema(strict=True), core_schema.str_schema()]))
]


class Config(LlamaLike):
    """`LagunaConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 100352
    hidden_size: Count = 2048
    intermediate_size: Count = 8192
    num_hidden_layers: Layers = 40
    num_attention_heads: Count = 48
    num_key_value_heads: Count = 8
    head_dim: Count = 128
    max_position_embeddings: Count = 131072
    rope_parameters: Fields | None = None
    attention_bias: Switch = False
    gating: Gating = True
    num_attention_heads_per_layer: list[Count] | None = None
    sliding_window: Window = 512
    layer_types: LayerTypes | None = None
    mlp_layer_types: LayerNetworks | None = None
    moe_intermediate_size: Count = 512
    shared_expert_intermediate_size: Count = 512
    num_experts: Count = 256
    num_experts_per_tok: Count = 8
    decoder_sparse_step: Count = 1
    mlp_only_layers: list[UpTo] | None = None
    gating_types: list[Word] | None = None

    uncounted: ClassVar = LlamaLike.uncounted | {"decoder_sparse_step", "mlp_only_layers", "gating_types"}
    stems: ClassVar = ("Laguna",)
    in_files: ClassVar = (
        (r"\.mlp\.experts\.e_score_correction_bias$", ".mlp.gate.e_score_correction_bias"),
        (r"\.mlp\.shared_expert\.", ".mlp.shared_experts."),
    )
    heads: ClassVar = DECODER
    harmless: ClassVar = frozenset(
        {"moe_apply_router_weight_on_input", "moe_routed_scaling_factor", "moe_router_logit_softcapping"}
    )
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **BESIDE_PATHS,
        **QK_NORM_PATHS,
        "blocks.*.attn.gate_proj": "model.layers.*.self_attn.g_proj",
    }
    hf_tensors: ClassVar = {**ROUTED_TENSORS, CHOICE: "model.layers.*.mlp.gate.e_score_correction_bias"}

    def of_layer(self, window: int | None, heads: int) -> Attention:
        """Attention of a layer: its window, its angles, so many query heads. Raises ConfigError."""
        spelled, biased = angles_of(self.rope_parameters, ROPE, window), self.attention_bias
        return Attention(
            hidden=self.hidden_size,
            kv_heads=self.num_key_value_heads,
            group=share(heads, self.num_key_value_heads, "query heads of a layer by num_key_value_heads"),
            head_dim=self.head_dim,
            qkv_bias=biased,
            out_bias=biased,
            qk_norm=QKNorm(self.rms_norm_eps),
            rotary=Rotary(spelled.get("rope_theta") or 10_000.0, spelled),
            rope_dim=even(int(self.head_dim * turned_part(1.0, spelled)), "partial_rotary_factor · head_dim ="),
            window=window,
            gated=True,
            gate_bias=False,
            gates="elements" if self.gating == "per-element" else "heads",
            gate_act="softplus",
        )

    def query_heads(self) -> list[int]:
        """Query heads of each layer. Raises ConfigError."""
        given, layers = self.num_attention_heads_per_layer, self.num_hidden_layers
        if given is None:
            return [self.num_attention_heads] * layers
        one_each("num_attention_heads_per_layer", given, layers)
        return given

    def agree(self) -> None:
        """Refuse fields of its files that the class does not read, where they say otherwise. Raises ConfigError."""
        routed = dense_or_sparse(self.mlp_layer_types, self.num_hidden_layers)
        dense = [number for number, experts in enumerate(routed) if not experts]
        gates = "per_element" if self.gating == "per-element" else "per_head"
        same = {"decoder_sparse_step": 1, "mlp_only_layers": dense, "gating_types": [gates] * len(routed)}
        for name, value in same.items():
            if getattr(self, name) not in (None, value):
                raise self.refused(name, getattr(self, name))

    def architecture(self) -> Transformer:
        """Query heads, windows and experts as the lists say."""
        if self.gating not in (True, "per-head", "per-element"):
            raise self.refused("gating", self.gating)
        self.agree()
        check_active(self.num_experts_per_tok, self.num_experts, ("num_experts_per_tok", "num_experts"))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            shared=self.shared_expert_intermediate_size,
            choice_bias=True,
            activation=self.activation,
        )
        layers = self.num_hidden_layers
        seen = windows(self.layer_types, layers, self.sliding_window, lambda _number: False)
        per_layer = list(zip(seen, self.query_heads(), dense_or_sparse(self.mlp_layer_types, layers), strict=True))
        kinds = {
            (window, heads, routed): self.block(
                self.of_layer(window, heads), experts if routed else self.feed_forward()
            )
            for window, heads, routed in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[kind] for kind in per_layer])
