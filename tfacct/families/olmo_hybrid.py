"""OLMo Hybrid: gated DeltaNet in three layers of four, with norms in front; OLMo 2's block in the fourth, with norms
behind."""

from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import DeltaNet, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Switch
from tfacct.families._delta_like import LINEAR, DeltaLike, delta_paths, delta_tensors
from tfacct.families._endings import DECODER
from tfacct.families._layers import FULL, LayerTypes
from tfacct.families._llama_like import QK_NORM_PATHS

RELEASED = "2026-02"

_EPS = 1e-5
"""Of the norm behind DeltaNet: the class's own number."""


def _heads(fields: dict[str, Any]) -> Any:
    return fields["num_attention_heads"]


class Config(DeltaLike):
    """`OlmoHybridConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 100352
    hidden_size: Count = 3840
    intermediate_size: Count = 11008
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 30
    num_key_value_heads: Count = Field(default_factory=_heads)
    max_position_embeddings: Count = 65536
    attention_bias: Switch = False
    layer_types: LayerTypes | None = None
    linear_num_key_heads: Count = Field(default_factory=_heads)
    linear_num_value_heads: Count = Field(default_factory=_heads)
    linear_key_head_dim: Count = Field(
        default_factory=lambda fields: 3 * fields["hidden_size"] // 4 // fields["linear_num_key_heads"]
    )
    linear_value_head_dim: Count = Field(default_factory=lambda fields: 2 * fields["linear_key_head_dim"])
    linear_conv_kernel_dim: Count = 4
    linear_allow_neg_eigval: Switch = True

    uncounted: ClassVar = DeltaLike.uncounted | {"linear_allow_neg_eigval"}
    harmless: ClassVar = frozenset(
        {"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"}
    )
    stems: ClassVar = ("OlmoHybrid",)
    in_files: ClassVar = (
        (r"\.attention_layer_norm\.", ".input_layernorm."),
        (r"\.feedforward_layer_norm\.", ".post_attention_layernorm."),
    )
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **DeltaLike.hf_paths,
        **QK_NORM_PATHS,
        "blocks.*.attn_post_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_feedforward_layernorm",
        **delta_paths(
            "linear_attn",
            **{name: name for name in ("q_proj", "k_proj", "v_proj")},
            gate_proj="g_proj",
            rate_proj="b_proj",
            decay_proj="a_proj",
            out_norm="o_norm",
            out_proj="o_proj",
        ),
    }
    hf_tensors: ClassVar = delta_tensors("linear_attn")

    @property
    def kernel(self) -> int:
        """Tokens that the convolution sees."""
        return self.linear_conv_kernel_dim

    def kinds(self) -> list[str]:
        """The kind of each layer."""
        layers = self.num_hidden_layers
        full = [number % 4 == 3 or (layers < 4 and number == layers - 1) for number in range(layers)]
        return self.layer_kinds(self.layer_types, full)

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked."""
        return None if {FULL, LINEAR} <= set(self.kinds()) else "it wants layers of both kinds"

    def delta(self) -> DeltaNet:
        """DeltaNet: one decay for each head, rates up to 2 where negative eigenvalues are allowed."""
        return self.deltas(
            self.linear_num_value_heads,
            self.linear_num_key_heads,
            key_dim=self.linear_key_head_dim,
            value_dim=self.linear_value_head_dim,
            kernel=self.linear_conv_kernel_dim,
            doubled=self.linear_allow_neg_eigval,
            eps=_EPS,
        )

    def architecture(self) -> Transformer:
        """Blocks of two kinds, with norms in other places."""
        self.whole_heads()
        turned = "rope_theta" not in (self.rope_parameters or {}) or self.rope_parameters["rope_theta"] is not None  # type: ignore[index]
        attention = self.attention(
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            qk_norm=QKNorm(self.rms_norm_eps, together=True),
            **({} if turned else {"rotary": None}),
        )
        made = {
            FULL: Block.of(attention, self.feed_forward(), post_norm=self.norm()),
            LINEAR: Block.of(self.delta(), self.feed_forward(), norm=self.norm()),
        }
        return self.decoder([made[kind] for kind in self.kinds()])
