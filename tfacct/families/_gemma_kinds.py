"""Shared by Gemma 4 and EmbeddingGemma 2: heads of each kind of layer's own, and norms around every sublayer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, QKNorm, Rotary
from tfacct.base.errors import ConfigError
from tfacct.families._base import Fields, Word, even, share, shown
from tfacct.families._gemma_like import GemmaLike
from tfacct.families._llama_like import QK_NORM_PATHS

OWN = ("head_dim", "num_key_value_heads")
"""What per_layer_config may say of a layer."""


class OfKinds(GemmaLike):
    """The fields that they spell alike."""

    hidden_activation: Word = "gelu_pytorch_tanh"
    per_layer_config: Fields | None = None

    uncounted: ClassVar = GemmaLike.uncounted | {"hidden_activation"}
    nulls: ClassVar = {"per_layer_config": {}}  # no layer has sizes of its own, whatever global_head_dim says
    hf_paths: ClassVar = {
        **GemmaLike.hf_paths,
        **QK_NORM_PATHS,
        "blocks.*.attn_post_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.mlp_norm": "model.layers.*.pre_feedforward_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_feedforward_layernorm",
    }

    @property
    def activation(self) -> str:
        """hidden_activation."""
        return self.hidden_activation

    @property
    def overrides(self) -> dict[int, dict[str, int]]:
        """What per_layer_config says of single layers. Raises ConfigError."""
        found: dict[int, dict[str, int]] = {}
        for text, fields in (self.per_layer_config or {}).items():
            sizes = fields if isinstance(fields, Mapping) else {"": fields}
            if not text.isdigit() or int(text) >= self.num_hidden_layers:
                raise ConfigError(f"per_layer_config names layer {shown(text)}, of {self.num_hidden_layers:,}")
            for name, value in sizes.items():
                if name not in OWN:
                    raise self.refused(f"per_layer_config.{text}.{name}", value)
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    raise ConfigError(f"per_layer_config.{text}.{name} must be a whole number, not {shown(value)}")
            found[int(text)] = dict(sizes)
        return found

    def attention_of(
        self, window: int | None, size: int, kv_heads: int, angles: Mapping[str, Any], **how: Any
    ) -> Attention:
        """Attention of a layer: heads of its kind, turned by these angles."""
        return Attention(
            hidden=self.hidden_size,
            kv_heads=kv_heads,
            group=share(self.num_attention_heads, kv_heads, "num_attention_heads by key/value heads"),
            head_dim=even(size, "head_dim" if window is not None else "global_head_dim"),
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            rotary=Rotary(angles.get("rope_theta") or 10_000.0, angles),
            qk_norm=QKNorm(self.rms_norm_eps),
            value_norm=self.rms_norm_eps,
            window=window,
            scale=1.0,
            **how,
        )

    def norm(self) -> Any:
        """RMSNorm, its weight the scale itself."""
        return replace(GemmaLike.norm(self), less_one=False)
