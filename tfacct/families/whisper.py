"""Whisper: an encoder of audio behind two convolutions, and a decoder of text; norms in front of the sublayers."""

from typing import ClassVar

from tfacct.architecture.blocks import Order
from tfacct.architecture.parts import Embedding, Head, Norm, Positions, Stem
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.families._bart_like import Sides, class_attention, class_stack
from tfacct.families._base import Count, Layers
from tfacct.families._endings import BODY, Ending

RELEASED = "2022-09"


class Config(Sides):
    """`WhisperConfig`, with its class's defaults."""

    vocab_size: Count = 51865
    num_mel_bins: Count = 80
    d_model: Count = 384
    encoder_layers: Layers = 4
    encoder_attention_heads: Count = 6
    encoder_ffn_dim: Count = 1536
    decoder_layers: Layers = 4
    decoder_attention_heads: Count = 6
    decoder_ffn_dim: Count = 1536
    max_source_positions: Count = 1500
    max_target_positions: Count = 448

    stems: ClassVar = ("Whisper",)
    aliases: ClassVar = {**Sides.aliases, "num_key_value_heads": "encoder_attention_heads"}
    harmless: ClassVar = Sides.harmless | frozenset(
        """
        scale_embedding forced_decoder_ids use_weighted_layer_sum classifier_proj_size apply_spec_augment mask_time_prob
        mask_time_length mask_time_min_masks mask_feature_prob mask_feature_length mask_feature_min_masks
        median_filter_width lang_ids lang_to_id task_to_id is_multilingual alignment_heads
        """.split()
    )
    heads: ClassVar = {"ForConditionalGeneration": Ending("AutoModelForSpeechSeq2Seq"), "Model": BODY}
    order: ClassVar[Order] = "pre"
    key_bias: ClassVar = False
    class_source_whole: ClassVar = True
    hf_paths: ClassVar = {
        "embed": "model.decoder.embed_tokens",
        "encoder.stem.conv1": "model.encoder.conv1",
        "encoder.stem.conv2": "model.encoder.conv2",
        **class_stack("encoder.", "encoder"),
        "encoder.final_norm": "model.encoder.layer_norm",
        **class_stack("", "decoder"),
        **class_attention("blocks.*.cross", "model.decoder.layers.*.encoder_attn"),
        "final_norm": "model.decoder.layer_norm",
        "lm_head": "proj_out",
    }
    fixed: ClassVar = Sides.fixed | {"Fp", "Kf"}  # the stem's convolutions

    @property
    def context(self) -> int:
        """max_target_positions."""
        return self.max_target_positions

    @property
    def source(self) -> int:
        """max_source_positions."""
        return self.max_source_positions

    def architecture(self) -> Transformer:
        """A stem in front of the encoder, a token table in front of the decoder, and positions on each side."""
        reading, writing = self.blocks()
        hidden, vocab = self.d_model, self.vocab_size
        norm = Norm(hidden=hidden, kind="layer")
        return Transformer(
            encoder=Encoder(
                embed=None,
                stem=Stem(bins=self.num_mel_bins, hidden=hidden),
                stacks=(reading,),
                positions=Positions(rows=self.max_source_positions, hidden=hidden, trained=False),
                final_norm=norm,
                apart=frozenset("KHFP"),
            ),
            embed=Embedding(vocab=vocab, hidden=hidden),
            positions=Positions(rows=self.max_target_positions, hidden=hidden),
            stacks=(writing,),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=vocab, tied=self.tie_word_embeddings),
        )
