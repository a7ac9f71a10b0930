"""T5Gemma 2: an encoder and a decoder of Gemma 3's blocks; a decoder's tokens see themselves and the source at once."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Stack, stacks
from tfacct.architecture.parts import Attention, Embedding, Head, MergedAttention
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Fields, Switch, shown, validate
from tfacct.families._endings import BODY, SEQ2SEQ
from tfacct.families._layers import windows
from tfacct.families.gemma3_text import Config as Gemma3
from tfacct.families.t5gemma import LAYER as SUBLAYERS

RELEASED = "2025-12"

READING, WRITING = "model.encoder.text_model.", "model.decoder."
LAYER = {**SUBLAYERS, **{f"attn.{which}_norm": f"self_attn.{which}_norm" for which in "qk"}}
OF_SOURCE = {
    **{f"attn.source_{which}_proj": f"self_attn.{which}_proj" for which in "kv"},
    "attn.source_scores": "self_attn",
    "attn.source_values": "self_attn",
}


def _side(ours: str, theirs: str, layer: Mapping[str, str]) -> dict[str, str]:
    blocks = {f"{ours}blocks.*.{name}": f"{theirs}layers.*.{their}" for name, their in layer.items()}
    return {f"{ours}embed": f"{theirs}embed_tokens", f"{ours}final_norm": f"{theirs}norm", **blocks}


class Side(Gemma3):
    """`T5Gemma2TextConfig` or `T5Gemma2DecoderConfig`, with their defaults, which are Gemma 3's: one side."""

    uncounted: ClassVar = Gemma3.uncounted
    harmless: ClassVar = Gemma3.harmless | {"cross_attention_hidden_size", "is_encoder_decoder"}

    def stack(self, *, reads: bool) -> tuple[Stack, ...]:
        """The blocks of a side; a decoder's read the source too. Raises ConfigError."""
        if self.use_bidirectional_attention:
            raise self.refused("use_bidirectional_attention", True)
        norm, network, kinds = self.norm(), self.feed_forward(), {}
        per_layer = windows(self.layer_types, self.num_hidden_layers, self.sliding_window, self.slides)
        for window in dict.fromkeys(per_layer):
            own = self.attention(scale=self.query_pre_attn_scalar**-0.5, causal=reads, **self.of_layer(window))
            how = {field.name: getattr(own, field.name) for field in fields(Attention)}
            kinds[window] = Block.of(MergedAttention(**how) if reads else own, network, norm=norm, post_norm=norm)
        return stacks([kinds[window] for window in per_layer])

    def embed(self, **own: bool) -> Embedding:
        """Token rows times √hidden_size."""
        return Embedding(vocab=self.vocab_size, hidden=self.hidden_size, scaled=True, **own)


class Reading(FamilyConfig):
    """`T5Gemma2EncoderConfig`: what the encoder reads text by. What it sees by is no part of either side."""

    text_config: Fields | None = None

    harmless: ClassVar = frozenset(
        """
        boi_token_index eoi_token_index image_token_index boi_token_id eoi_token_id image_token_id mm_tokens_per_image
        tie_word_embeddings
        """.split()
    )


class Config(FamilyConfig):
    """`T5Gemma2Config`, with its class's defaults. Each side's sizes are fields of `encoder.text_config` and of
    `decoder`."""

    encoder: Fields | None = None
    decoder: Fields | None = None
    vocab_size: Count | None = None
    tie_word_embeddings: Switch = True
    is_encoder_decoder: Switch = True

    stems: ClassVar = ("T5Gemma2",)
    uncounted: ClassVar = frozenset(("is_encoder_decoder", "vocab_size", "encoder", "decoder"))
    harmless: ClassVar = frozenset(("image_token_index", "eoi_token_index", "image_token_id", "eoi_token_id"))
    heads: ClassVar = {"ForConditionalGeneration": SEQ2SEQ, "Model": BODY}
    hf_paths: ClassVar = {
        **_side("encoder.", READING, LAYER),
        **_side("", WRITING, {**LAYER, **OF_SOURCE}),
        "lm_head": "lm_head.out_proj",
    }
    hf_tensors: ClassVar = {
        "embed.image_end.weight": f"{WRITING}embed_tokens.eoi_embedding",
        "encoder.embed.image_end.weight": f"{READING}embed_tokens.eoi_embedding",
    }

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields of the whole and of both sides."""
        config, defaulted, unknown = validate(cls, raw)
        assert isinstance(config, Config)
        for name in SIDES:
            _, filled, others = config.side(name)
            at = SIDES[name]
            defaulted |= {f"{at}.{field}": value for field, value in filled.items() if field != "tie_word_embeddings"}
            unknown += [f"{at}.{field}" for field in others]
        return config, defaulted, unknown

    def side(self, name: str) -> tuple[Side, dict[str, Any], list[str]]:
        """One side's checked fields, those that were defaulted, and the names that nobody here knows."""
        try:
            given: Any = getattr(self, name) or {}
            others: list[str] = []
            if name == "encoder":
                inside, _, others = validate(Reading, given)
                given = inside.text_config or {}  # type: ignore[attr-defined]
            side, defaulted, unknown = validate(Side, given)
        except ConfigError as error:
            raise ConfigError(f"{SIDES[name]}: {error.message}", error.hint) from None
        assert isinstance(side, Side)
        return side, defaulted, [*others, *unknown]

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        """Encoder and decoder. Raises ConfigError."""
        return self.side("encoder")[0], self.side("decoder")[0]

    @property
    def context(self) -> int:
        """max_position_embeddings of the decoder."""
        return self.sides[1].max_position_embeddings

    @property
    def source(self) -> int:
        """max_position_embeddings of the encoder."""
        return self.sides[0].max_position_embeddings

    def class_paths(self) -> Mapping[str, str]:
        """A table of both sides is the encoder's."""
        if not self.tie_word_embeddings:
            return self.hf_paths
        return {**self.hf_paths, "embed": self.hf_paths["encoder.embed"]}

    def tensors(self) -> dict[str, str]:
        """So is the row of what ends an image."""
        own, theirs = self.hf_tensors
        tied = {own: self.hf_tensors[theirs]} if self.tie_word_embeddings else {}
        return self.ending.renamed({**self.hf_tensors, **tied}, self.body)

    def architecture(self) -> Transformer:
        """Two sides of Gemma 3's blocks, each between a token table and a norm of its own. Raises ConfigError."""
        if not self.is_encoder_decoder:
            raise self.refused("is_encoder_decoder", False)
        reading, writing = self.sides
        for name in ("hidden_size", "vocab_size"):
            one, other = getattr(reading, name), getattr(writing, name)
            if one != other:
                raise ConfigError(f"{name} is {one:,} in encoder.text_config and {other:,} in decoder: it must be one")
        if self.vocab_size not in (None, writing.vocab_size):
            raise ConfigError(f"vocab_size = {shown(self.vocab_size)} contradicts {writing.vocab_size:,} in decoder")
        tied = self.tie_word_embeddings
        front = reading.embed(shared=True) if tied else reading.embed(image_end=True)
        return Transformer(
            encoder=Encoder(front, reading.stack(reads=False), final_norm=reading.norm()),
            embed=writing.embed(image_end=True),
            stacks=writing.stack(reads=True),
            final_norm=writing.norm(),
            head=Head(
                hidden=writing.hidden_size,
                vocab=writing.vocab_size,
                tied=tied,
                softcap=writing.final_logit_softcapping,
            ),
        )


SIDES = {"encoder": "encoder.text_config", "decoder": "decoder"}
"""Fields of both sides, and how a message calls them."""
