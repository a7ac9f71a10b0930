"""PLaMo 3: norms in front of each part and behind it, as in Gemma 3; a window in all layers but every few."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic_core import core_schema

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Norm, QKNorm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked, Count, Layers, Real, Switch, Word
from tfacct.families._endings import CAUSAL_MODEL
from tfacct.families._layers import FULL, SLIDING, one_each
from tfacct.families._llama_like import LlamaLike
from tfacct.families.gemma3_text import Config as Gemma3

RELEASED = "2025-10"

_WIDTHS = core_schema.list_schema(core_schema.nullable_schema(core_schema.int_schema(ge=1)), strict=True)
Widths = Annotated[list[int | None], Checked(_WIDTHS)]


class Config(LlamaLike):
    """`Plamo3Config` of its own code, with its defaults, sizes too: transformers has no class for it."""

    vocab_size: Count = 32000
    hidden_size: Count = 4096
    intermediate_size: Count = 13312
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 4
    head_dim: Count = 128
    max_position_embeddings: Count = 2048
    tie_word_embeddings: Switch = True
    window_size: Count = 2048
    sliding_window_pattern: Count = 8
    interleaved_sliding_window: Widths | None = None
    attention_bias: Switch = False
    hidden_activation: Word = "swiglu"
    rope_theta: Real | None = 1_000_000.0
    rope_local_theta: Real = 10_000.0
    rope_scaling_factor: Real = 1.0
    initial_context_length: Count | None = None

    stems: ClassVar = ("Plamo3", "Gemma3", "Gemma3Text")
    class_type: ClassVar = "gemma3_text"
    heads: ClassVar = {"ForCausalLM": CAUSAL_MODEL}
    uncounted: ClassVar = LlamaLike.uncounted | frozenset(
        """
        interleaved_sliding_window attention_bias hidden_activation rope_local_theta rope_scaling_factor
        initial_context_length
        """.split()
    )
    aliases: ClassVar = {"sliding_window": "window_size"}
    in_files: ClassVar = (
        (r"^model\.layers\.layers\.", "model.layers."),
        (r"\.mixer\.", ".self_attn."),
        (r"\.pre_mixer_norm\.", ".input_layernorm."),
        (r"\.post_mixer_norm\.", ".post_attention_layernorm."),
        (r"\.pre_mlp_norm\.", ".pre_feedforward_layernorm."),
        (r"\.post_mlp_norm\.", ".post_feedforward_layernorm."),
    )
    hf_paths: ClassVar = Gemma3.hf_paths

    @property
    def activation(self) -> str:
        """hidden_activation names the whole gated network. Raises ConfigError."""
        if self.hidden_activation != "swiglu":
            raise self.refused("hidden_activation", self.hidden_activation)
        return "silu"

    def windows(self) -> list[int | None]:
        """The window of each layer, None where it sees everything. Raises ConfigError."""
        layers, every = self.num_hidden_layers, self.sliding_window_pattern
        own = [self.window_size if (number + 1) % every else None for number in range(layers)]
        said = self.interleaved_sliding_window
        if said is not None:
            one_each("interleaved_sliding_window", said, layers)
            if said != own:
                raise ConfigError("interleaved_sliding_window is not what window_size and sliding_window_pattern say")
        return own

    def norm(self) -> Norm:
        """RMSNorm whose weight is the scale less a number."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps, less_one=True)

    def angles(self, window: int | None) -> Rotary:
        """By the layer's own base. Raises ConfigError."""
        if window is not None:
            return Rotary(self.rope_local_theta)
        if self.rope_scaling_factor == 1:
            return Rotary(self.rope_theta or 1_000_000.0)
        if self.initial_context_length is None:
            raise ConfigError("rope_scaling_factor needs initial_context_length")
        stretched = {
            "rope_type": "yarn",
            "factor": self.rope_scaling_factor,
            "original_max_position_embeddings": self.initial_context_length,
            "truncate": False,
        }
        return Rotary(self.rope_theta or 1_000_000.0, stretched)

    def architecture(self) -> Transformer:
        """Blocks of two kinds. Raises ConfigError."""
        if self.attention_bias:
            raise self.refused("attention_bias", self.attention_bias)
        norm, network, per_layer = self.norm(), self.feed_forward(), self.windows()
        of_each = QKNorm(self.rms_norm_eps, less_one=True)

        def block(window: int | None) -> Block:
            attention = self.attention(window=window, rotary=self.angles(window), qk_norm=of_each)
            return Block.of(attention, network, norm=norm, post_norm=norm)

        kinds = {window: block(window) for window in dict.fromkeys(per_layer)}
        return self.decoder([kinds[window] for window in per_layer])

    def class_fields(self) -> Mapping[str, Any]:
        """Its sizes with their defaults, and its windows, by Gemma 3's names."""
        names = """vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads
            head_dim max_position_embeddings tie_word_embeddings rms_norm_eps"""
        return {
            **self.model_dump(include=set(names.split())),
            "sliding_window": self.window_size,
            "layer_types": [FULL if window is None else SLIDING for window in self.windows()],
            "query_pre_attn_scalar": self.head_dim,
            "hidden_activation": self.activation,
        }
