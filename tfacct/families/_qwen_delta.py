"""Shared by Qwen3-Next and Qwen3.5: DeltaNet in three layers of four, attention with an output gate in the others."""

from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, DeltaNet, Norm, QKNorm
from tfacct.families._base import Count, Fraction, Switch, even, turned_part
from tfacct.families._delta_like import DeltaLike, delta_tensors
from tfacct.families._endings import LABELLING
from tfacct.families._layers import LayerTypes

_ATTN = "model.layers.*.self_attn."


class QwenDelta(DeltaLike):
    """The fields that Qwen3-Next and Qwen3.5 spell alike."""

    head_dim: Count = 256
    max_position_embeddings: Count = 32768
    attention_bias: Switch = False
    partial_rotary_factor: Fraction = 0.25
    linear_conv_kernel_dim: Count = 4
    linear_key_head_dim: Count = 128
    linear_value_head_dim: Count = 128
    linear_num_key_heads: Count = 16
    linear_num_value_heads: Count = 32
    layer_types: LayerTypes | None = None
    full_attention_interval: Count = 4
    attn_output_gate: Switch = True

    uncounted: ClassVar = DeltaLike.uncounted | {"partial_rotary_factor", "attn_output_gate"}
    harmless: ClassVar = frozenset(
        """
        mamba_ssm_dtype output_gate_type
        """.split()
    )  # the class builds no layer of multi-token prediction
    heads: ClassVar = LABELLING
    hf_paths: ClassVar = {
        **DeltaLike.hf_paths,
        "blocks.*.attn.gate_proj": f"{_ATTN}q_proj",
        "blocks.*.attn.q_norm": f"{_ATTN}q_norm",
        "blocks.*.attn.k_norm": f"{_ATTN}k_norm",
    }

    @property
    def kernel(self) -> int:
        """Tokens that the convolution sees."""
        return self.linear_conv_kernel_dim

    def norm(self) -> Norm:
        """RMSNorm whose weight is its scale less 1."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps, less_one=True)

    def kinds(self) -> list[str]:
        """The kind of each layer."""
        every = self.full_attention_interval
        return self.layer_kinds(self.layer_types, [(n + 1) % every == 0 for n in range(self.num_hidden_layers)])

    def attention(self, **own: Any) -> Attention:
        """Attention with an output gate, a part of each head rotated. Raises ConfigError."""
        if not self.attn_output_gate:
            raise self.refused("attn_output_gate", False)
        part = turned_part(self.partial_rotary_factor, self.rope_parameters)
        turned = even(int(self.head_dim * part), "partial_rotary_factor · head_dim =")
        return DeltaLike.attention(
            self,
            gated=True,
            rope_dim=turned,
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            qk_norm=QKNorm(self.rms_norm_eps, less_one=True),
            **own,
        )

    def delta(self) -> DeltaNet:
        """DeltaNet: one decay for each head."""
        return self.deltas(
            self.linear_num_value_heads,
            self.linear_num_key_heads,
            key_dim=self.linear_key_head_dim,
            value_dim=self.linear_value_head_dim,
            kernel=self.linear_conv_kernel_dim,
            eps=self.rms_norm_eps,
        )


TENSORS = delta_tensors("linear_attn")
BEHIND = {"out_norm": "norm", "out_proj": "out_proj"}
"""Modules behind the recurrence, by our name and the class's."""
