"""Muse Glimmer's language model: gated attention, norms around every sublayer; windows in three layers of four."""

from typing import Annotated, Any, ClassVar

from pydantic_core import core_schema

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Head, Norm, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Checked, Count, Layers, Real, Switch, Word
from tfacct.families._endings import inside
from tfacct.families._layers import LayerTypes, one_each, windows
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2026-08"

Bases = Annotated[list[float], Checked(core_schema.list_schema(core_schema.float_schema(ge=0), strict=True))]


class Config(LlamaLike):
    """`MuseGlimmerTextConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 202_048
    hidden_size: Count = 6656
    intermediate_size: Count = 19968
    num_hidden_layers: Layers = 52
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 2
    head_dim: Count = 128
    max_position_embeddings: Count = 131_072
    hidden_activation: Word = "silu"
    rms_norm_eps: Real = 1e-5
    post_norm_eps: Real = 1e-8
    attention_bias: Switch = False
    sliding_window: Window | None = 2048
    layer_types: LayerTypes | None = None
    layer_rope_theta: Bases | None = None
    final_logit_softcapping: Real = 20.0
    qk_scale_factor: Real = 3.87
    output_multiplier: Real = 0.19611613513818404

    stems: ClassVar = ("MuseGlimmer", "MuseGlimmerText")
    heads: ClassVar = inside("MuseGlimmerForConditionalGeneration")
    uncounted: ClassVar = LlamaLike.uncounted | {
        "final_logit_softcapping",
        "hidden_activation",
        "layer_rope_theta",
        "output_multiplier",
        "post_norm_eps",
        "qk_scale_factor",
    }
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        "blocks.*.attn.gate_proj": "model.layers.*.self_attn.gate_proj",
        "blocks.*.attn_post_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.mlp_norm": "model.layers.*.pre_feedforward_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_feedforward_layernorm",
    }

    @property
    def activation(self) -> str:
        """hidden_activation."""
        return self.hidden_activation

    def norm(self) -> Norm:
        """RMSNorm whose weight is the scale less 1."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps, less_one=True)

    def seldom(self, number: int) -> bool:
        """True of every fourth layer, counted back from the last."""
        return (self.num_hidden_layers - 1 - number) % 4 == 0

    def turned(self) -> list[bool]:
        """Booleans, one for each layer: whether queries and keys are rotated. Raises ConfigError."""
        given, layers = self.layer_rope_theta, self.num_hidden_layers
        if given is None:
            return [not self.seldom(number) for number in range(layers)]
        one_each("layer_rope_theta", given, layers)
        return [base > 0 for base in given]

    def attending(self, window: int | None, rotated: bool) -> Attention:
        """Attention of a layer with this window."""
        biased = self.attention_bias
        return self.attention(
            qkv_bias=biased,
            out_bias=biased,
            qk_norm=QKNorm(self.rms_norm_eps, learned=False),
            scale=self.qk_scale_factor * self.head_dim**-0.5,
            window=window,
            gated=True,
            gate_bias=False,
            **({} if rotated else {"rotary": None}),
        )

    def around(self, window: int | None, rotated: bool) -> Block:
        """A layer: norms before and behind attention and network. Raises ConfigError."""
        behind = Norm(hidden=self.hidden_size, kind="rms", eps=self.post_norm_eps, less_one=True)
        return Block.of(self.attending(window, rotated), self.feed_forward(), norm=self.norm(), post_norm=behind)

    def ends(self) -> dict[str, Any]:
        """Norms in front of the blocks and behind them, and the head."""
        plain = LlamaLike.norm(self)
        head = Head(
            hidden=self.hidden_size,
            vocab=self.vocab_size,
            tied=self.tie_word_embeddings,
            logit_scale=self.output_multiplier,
            softcap=self.final_logit_softcapping,
        )
        bare = Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps, learned="none")
        return {"embed_norm": bare, "final_norm": plain, "head": head}

    def architecture(self) -> Transformer:
        """Windows and rotation as the lists say, or in three layers of four."""
        layers = self.num_hidden_layers
        seen = windows(self.layer_types, layers, self.sliding_window, lambda number: not self.seldom(number))
        per_layer = list(zip(seen, self.turned(), strict=True))
        kinds = {kind: self.around(*kind) for kind in dict.fromkeys(per_layer)}
        return self.decoder([kinds[kind] for kind in per_layer], **self.ends())
