"""LFM3: LFM2's short convolutions; gated attention, every other with a window; norms around every sublayer."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, QKNorm, Rotary, ShortConvolution
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fields, Layers, Real, Switch
from tfacct.families._layers import FULL, SLIDING, LayerTypes, angles_of, kinds_of_layers
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike
from tfacct.families.lfm2 import CONV, Lfm2Like
from tfacct.families.mistral import Window

RELEASED = "2026-10"

ROPE = {
    FULL: {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.5},
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
}
"""The class's angles where the config has none."""


class Config(Lfm2Like):
    """`Lfm3Config`, with its class's defaults, sizes too. The head is tied unless the config says otherwise."""

    vocab_size: Count = 128_000
    hidden_size: Count = 2048
    intermediate_size: Count = 7680
    num_hidden_layers: Layers = 24
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 4
    head_dim: Count = 128
    rope_theta: Real | None = None
    rope_parameters: Fields | None = None
    conv_L_cache: Count = 7  # noqa: N815
    attention_bias: Switch = False
    sliding_window: Window | None = 256
    layer_types: LayerTypes | None = None
    use_sandwich_norm: Switch = True
    use_attention_gate: Switch = True

    stems: ClassVar = ("Lfm3",)
    in_files: ClassVar = ((r"\.self_attn\.gate_proj\.", ".self_attn.g_proj."),)
    hf_paths: ClassVar = {
        **Lfm2Like.hf_paths,
        **QK_NORM_PATHS,
        "blocks.*.attn.gate_proj": "model.layers.*.self_attn.g_proj",
        "blocks.*.attn.o_proj": LlamaLike.hf_paths["blocks.*.attn.o_proj"],
        "blocks.*.attn_post_norm": "model.layers.*.post_operator_norm",
        "blocks.*.conv_post_norm": "model.layers.*.post_operator_norm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_ffn_norm",
    }

    def kinds(self) -> list[str]:
        """What each layer has in front of its network. Raises ConfigError."""
        layers = self.num_hidden_layers
        if self.layer_types is not None:
            return kinds_of_layers(self.layer_types, layers, (FULL, SLIDING, CONV))
        return [FULL if n % 4 == 2 else SLIDING if n % 4 == 0 and n > 0 else CONV for n in range(layers)]

    def attending(self, window: int | None) -> Attention:
        """Attention of a layer with this window. Raises ConfigError."""
        spelled, biased = angles_of(self.rope_parameters, ROPE, window), self.attention_bias
        return self.attention(
            qkv_bias=biased,
            out_bias=biased,
            qk_norm=QKNorm(self.norm_eps),
            rotary=Rotary(spelled.get("rope_theta") or 10_000.0, spelled),
            window=window,
            gated=self.use_attention_gate,
            gate_bias=False,
            gates="heads",
        )

    def architecture(self) -> Transformer:
        """Convolution or attention in front of each layer's network. Raises ConfigError."""
        kinds = self.kinds()
        if SLIDING in kinds and self.sliding_window is None:
            raise ConfigError(f"layer {kinds.index(SLIDING)} has {SLIDING}, but sliding_window is null")
        mixer = ShortConvolution(hidden=self.hidden_size, kernel=self.conv_L_cache, bias=self.conv_bias)
        norm, behind = self.norm(), self.norm() if self.use_sandwich_norm else None
        made: Mapping[str, Block] = {
            kind: Block.of(
                mixer if kind == CONV else self.attending(self.sliding_window if kind == SLIDING else None),
                self.feed_forward(),
                norm=norm,
                post_norm=behind,
            )
            for kind in dict.fromkeys(kinds)
        }
        return self.decoder([made[kind] for kind in kinds])
