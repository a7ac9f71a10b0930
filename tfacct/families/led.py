"""LED: a BART whose encoder attends in windows that overlap, over a source padded to whole ones."""

from typing import ClassVar

from tfacct.architecture.blocks import Stack
from tfacct.architecture.parts import Embedding, Head, Norm, Positions
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._bart_like import ELSEWHERE, Sides, class_attention, class_stack
from tfacct.families._base import Count, CountOrList, Switch
from tfacct.families._endings import BODY, SEQ2SEQ
from tfacct.families._overlapping import each_window, own_paths, windowed

RELEASED = "2020-04"

WINDOWED = "led.encoder.layers.*.self_attn"
OWN = f"{WINDOWED}.longformer_self_attn"


class Config(Sides):
    """`model_type = "led"`."""

    vocab_size: Count = 50265
    max_encoder_position_embeddings: Count = 16384
    max_decoder_position_embeddings: Count = 1024
    attention_window: CountOrList = 512
    scale_embedding: Switch = False
    normalize_before: Switch = False
    add_final_layer_norm: Switch = False
    add_bias_logits: Switch = False
    do_blenderbot_90_layernorm: Switch = False
    normalize_embedding: Switch = True
    static_position_embeddings: Switch = False

    understood: ClassVar = {
        **ELSEWHERE,
        "scale_embedding": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
    }
    uncounted: ClassVar = Sides.uncounted | {*understood}
    stems: ClassVar = ("LED",)
    heads: ClassVar = {"ForConditionalGeneration": SEQ2SEQ, "Model": BODY}
    body: ClassVar = "led."
    hf_paths: ClassVar = {
        ours: theirs.replace("model.", "led.", 1)
        for ours, theirs in {
            "embed": "model.shared",
            **class_stack("encoder.", "encoder"),
            **class_stack("", "decoder"),
            **class_attention("blocks.*.cross", "model.decoder.layers.*.encoder_attn"),
        }.items()
    } | {
        **{f"encoder.blocks.*.attn.{ours}": theirs for ours, theirs in own_paths(OWN).items()},
        "encoder.blocks.*.attn.o_proj": f"{WINDOWED}.output",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """max_decoder_position_embeddings."""
        return self.max_decoder_position_embeddings

    @property
    def source(self) -> int:
        """max_encoder_position_embeddings, in whole windows. Raises ConfigError."""
        longest, rows = max(self.windows), self.max_encoder_position_embeddings
        if longest > rows:
            raise ConfigError(
                f"attention_window = {longest:,} is more than max_encoder_position_embeddings = {rows:,}: the source is"
                " padded to whole windows, and its class has no positions for one"
            )
        return rows - rows % longest

    @property
    def windows(self) -> list[int]:
        """Tokens of each encoder block's window. Raises ConfigError."""
        return each_window(self.attention_window, self.encoder_layers, "encoder_layers", "the source")

    def architecture(self) -> Transformer:
        """One token table for both sides and the head; each side has positions and a norm behind them."""
        if not self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", False)
        reading, writing = self.blocks()
        hidden, vocab, windows, _ = self.d_model, self.vocab_size, self.windows, self.source
        norm = Norm(hidden=hidden, kind="layer")
        return Transformer(
            encoder=Encoder(
                Embedding(vocab=vocab, hidden=hidden, shared=True),
                windowed(reading.block, windows),
                positions=Positions(rows=self.max_encoder_position_embeddings, hidden=hidden),
                embed_norm=norm,
                apart=frozenset("KHFP"),
            ),
            embed=Embedding(vocab=vocab, hidden=hidden),
            positions=Positions(rows=self.max_decoder_position_embeddings, hidden=hidden),
            embed_norm=norm,
            stacks=(Stack(writing.block, writing.count),),
            final_norm=None,
            head=Head(hidden=hidden, vocab=vocab, tied=True),
        )
