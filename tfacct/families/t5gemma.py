"""T5Gemma: an encoder and a decoder of Gemma 2's blocks, each with a width and sizes of its own."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Stack, stacks
from tfacct.architecture.parts import CrossAttention, Embedding, Head
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Fields, Layers, Real, Switch, validate
from tfacct.families._endings import BODY, SEQ2SEQ
from tfacct.families._gemma_windows import GemmaWindows
from tfacct.families._layers import windows

RELEASED = "2025-04"

TOKENS = 256_000
"""Rows of a table where a config says none: the class writes it beside both sides' own, and does not read it."""

SIDES = ("encoder", "decoder")
LAYER = {
    "attn_norm": "pre_self_attn_layernorm",
    **{f"attn.{name}": f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")},
    "attn.scores": "self_attn",
    "attn.values": "self_attn",
    "attn_post_norm": "post_self_attn_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    **{f"mlp.{name}": f"mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")},
    "mlp_post_norm": "post_feedforward_layernorm",
}
CROSS = {
    "cross_norm": "pre_cross_attn_layernorm",
    **{f"cross.{name}": f"cross_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")},
    "cross.scores": "cross_attn",
    "cross.values": "cross_attn",
    "cross_post_norm": "post_cross_attn_layernorm",
}


def _side(ours: str, theirs: str, layer: Mapping[str, str]) -> dict[str, str]:
    blocks = {f"{ours}blocks.*.{name}": f"model.{theirs}.layers.*.{their}" for name, their in layer.items()}
    ends = {"embed": "embed_tokens", "final_norm": "norm"}
    return {**{f"{ours}{name}": f"model.{theirs}.{their}" for name, their in ends.items()}, **blocks}


class Side(GemmaWindows):
    """`T5GemmaModuleConfig`, with its class's defaults: one side."""

    vocab_size: Count = TOKENS
    hidden_size: Count = 2304
    num_hidden_layers: Layers = 26
    num_attention_heads: Count = 8
    final_logit_softcapping: Real | None = 30.0
    attn_logit_softcapping: Real | None = 50.0

    harmless: ClassVar = GemmaWindows.harmless | {"cross_attention_hidden_size", "is_encoder_decoder"}

    def slides(self, number: int) -> bool:
        """Even layers, counted from 0."""
        return number % 2 == 0

    def stack(self, source_hidden: int | None = None) -> tuple[Stack, ...]:
        """The blocks of a side; of a decoder with the width of what it reads. Raises ConfigError."""
        if self.use_bidirectional_attention:
            raise self.refused("use_bidirectional_attention", True)
        reads = source_hidden is not None
        common: dict[str, Any] = {"softcap": self.attn_logit_softcapping, "scale": self.query_pre_attn_scalar**-0.5}
        per_layer = windows(self.layer_types, self.num_hidden_layers, self.sliding_window, self.slides)
        kinds = {}
        for window in dict.fromkeys(per_layer):
            seen = window if window is None or reads else 2 * window + 1  # before a token and behind it
            own = self.attention(**common, window=seen, causal=reads)
            cross = CrossAttention(
                hidden=self.hidden_size,
                kv_heads=own.kv_heads,
                group=own.group,
                head_dim=own.head_dim,
                qkv_bias=own.qkv_bias,
                out_bias=own.out_bias,
                source_hidden=None if source_hidden == self.hidden_size else source_hidden,
                **common,
            )
            norm = self.norm()
            parts = (own, *((cross,) if reads else ()), self.feed_forward())
            kinds[window] = Block.of(*parts, norm=norm, post_norm=norm)
        return stacks([kinds[window] for window in per_layer])


class Config(FamilyConfig):
    """`T5GemmaConfig`, with its class's defaults. Each side's sizes are fields of `encoder` and of `decoder`."""

    encoder: Fields | None = None
    decoder: Fields | None = None
    vocab_size: Count | None = None
    tie_word_embeddings: Switch = True
    is_encoder_decoder: Switch = True

    stems: ClassVar = ("T5Gemma",)
    uncounted: ClassVar = frozenset(("is_encoder_decoder", "vocab_size", "encoder", "decoder"))
    heads: ClassVar = {"ForConditionalGeneration": SEQ2SEQ, "Model": BODY}
    hf_paths: ClassVar = {
        **_side("encoder.", "encoder", LAYER),
        **_side("", "decoder", {**LAYER, **CROSS}),
        "lm_head": "lm_head.out_proj",
    }

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields of the whole and of both sides."""
        config, defaulted, unknown = validate(cls, raw)
        for name in SIDES:
            _, filled, others = _read(config, name)
            defaulted |= {f"{name}.{field}": value for field, value in filled.items() if field != "tie_word_embeddings"}
            unknown += [f"{name}.{field}" for field in others]
        return config, defaulted, unknown

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        """Encoder and decoder. Raises ConfigError."""
        reading, writing = (_read(self, name)[0] for name in SIDES)
        return reading, writing

    @property
    def context(self) -> int:
        """max_position_embeddings of the decoder."""
        return self.sides[1].max_position_embeddings

    @property
    def source(self) -> int:
        """max_position_embeddings of the encoder."""
        return self.sides[0].max_position_embeddings

    def architecture(self) -> Transformer:
        """Two sides of Gemma 2's blocks, each between a token table and a norm of its own."""
        if not self.is_encoder_decoder:
            raise self.refused("is_encoder_decoder", False)
        reading, writing = self.sides
        if self.vocab_size not in (None, TOKENS, writing.vocab_size):
            raise ConfigError(f"vocab_size = {self.vocab_size:,} contradicts {writing.vocab_size:,} in decoder")
        return Transformer(
            encoder=Encoder(
                Embedding(vocab=reading.vocab_size, hidden=reading.hidden_size, scaled=True),
                reading.stack(),
                final_norm=reading.norm(),
            ),
            embed=Embedding(vocab=writing.vocab_size, hidden=writing.hidden_size, scaled=True),
            stacks=writing.stack(reading.hidden_size),
            final_norm=writing.norm(),
            head=Head(
                hidden=writing.hidden_size,
                vocab=writing.vocab_size,
                tied=self.tie_word_embeddings,
                softcap=writing.final_logit_softcapping,
            ),
        )


def _read(config: Any, name: str) -> tuple[Side, dict[str, Any], list[str]]:
    """One side's checked fields, those that were defaulted, and the names that nobody here knows."""
    try:
        side, defaulted, unknown = validate(Side, getattr(config, name) or {})
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}", error.hint) from None
    assert isinstance(side, Side)
    return side, defaulted, unknown
