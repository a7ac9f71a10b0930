"""BART and its relatives: encoder and decoder of one width, with absolute positions."""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Order, Stack
from tfacct.architecture.parts import Attention, CrossAttention, Embedding, FeedForward, Head, Norm, Positions, Stem
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.base.errors import ConfigError
from tfacct.families.family import Family, attention_modules
from tfacct.families.fields import LayerCount, NonNegativeInt, PositiveInt, StrictBool, StrictStr, divide_exactly
from tfacct.families.task_heads import BODY, SEQ2SEQ, TaskHead

DROPOUTS: Mapping[str, tuple[str, float | None]] = {
    "embedding": ("dropout", 0.1),
    "residual": ("dropout", 0.1),
    "attention": ("attention_dropout", 0.0),
    "mlp_product": ("activation_dropout", 0.0),
}
MORE_DROPOUT = {**DROPOUTS, "attention": ("attention_dropout", 0.1)}
EMBEDDING_PER_SIDE = {"embed": "model.decoder.embed_tokens", "encoder.embed": "model.encoder.embed_tokens"}

SHARED = "encoder and decoder share one embedding"


def side_modules(prefix: str, side: str) -> dict[str, str]:
    """Modules of one side: positions, layers, and the decoder's cross-attention."""
    layers = f".{side}.layers.*"
    heads = {"attn": "self_attn"} | ({} if prefix else {"cross": "encoder_attn"})
    block = {"mlp.up_proj": "fc1", "mlp.down_proj": "fc2", "mlp_norm": "final_layer_norm"}
    for name, hf_name in heads.items():
        attention = attention_modules(hf_name, o="out_proj") | {"attn_norm": f"{hf_name}_layer_norm"}
        block |= {path.replace("attn", name, 1): module for path, module in attention.items()}
    tables = {"pos_embed": "embed_positions", "embed_norm": "layernorm_embedding"}
    return {
        **{f"{prefix}{name}": f".{side}.{hf_name}" for name, hf_name in tables.items()},
        **{f"{prefix}blocks.*.{name}": f"{layers}.{hf_name}" for name, hf_name in block.items()},
    }


def both_sides(layers: int, heads: int, width: int) -> dict[str, int]:
    """Layers, heads and MLP width, equal on both sides."""
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": width}
    return {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}


class EncoderDecoder(Family):
    """Encoder and decoder of one width, with their own heads and MLPs, for any kind of input."""

    d_model: PositiveInt = 1024
    encoder_layers: LayerCount = 12
    encoder_attention_heads: PositiveInt = 16
    encoder_ffn_dim: PositiveInt = 4096
    decoder_layers: LayerCount = 12
    decoder_attention_heads: PositiveInt = 16
    decoder_ffn_dim: PositiveInt = 4096
    tie_word_embeddings: StrictBool = True
    is_encoder_decoder: StrictBool = True
    activation_function: StrictStr = "gelu"
    vocab_size: PositiveInt

    order: ClassVar[Order] = "post"
    """Norms after (`post`) or before (`pre`) each sublayer; `pre` has one after the last layer of each side too."""
    embedding_norm = True
    """Whether a norm follows the embeddings."""
    key_bias = True
    separate_encoder_axes = "KHF"
    """Axes of the encoder whose sizes are its own."""
    required_values = {"is_encoder_decoder": True}
    reference_only = "is_encoder_decoder"
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }
    ignored_fields = """encoder_layerdrop decoder_layerdrop save_step force_bos_token_to_be_generated
        add_cross_attention extra_pos_embeddings"""
    constant_axes = frozenset("G")
    task_heads = {"ForConditionalGeneration": SEQ2SEQ, "Model": BODY}
    module_names = {
        "embed": ".shared",
        **side_modules("encoder.", "encoder"),
        **side_modules("", "decoder"),
        "lm_head": "lm_head",
    }

    def norm(self) -> Norm:
        return Norm(hidden=self.d_model, kind="layer")

    def stacks(self, side: str) -> tuple[Stack, ...]:
        """The layers of one side. Raises ConfigError."""
        hidden, heads = self.d_model, getattr(self, f"{side}_attention_heads")
        how: dict[str, Any] = {
            "hidden": hidden,
            "kv_heads": heads,
            "group": 1,
            "head_dim": divide_exactly(hidden, heads, f"d_model by {side}_attention_heads"),
            "qkv_bias": True,
            "key_bias": self.key_bias,
            "out_bias": True,
        }
        width = getattr(self, f"{side}_ffn_dim")
        mlp = FeedForward(hidden=hidden, width=width, bias=True, activation=self.activation_function)
        cross: list[Any] = [CrossAttention(**how)] if side == "decoder" else []
        parts = (Attention(**how, causal=side == "decoder"), *cross, mlp)
        return (Stack(Block.of(*parts, norm=self.norm(), order=self.order), getattr(self, f"{side}_layers")),)

    def embedding(self, side: str) -> Embedding:
        """Embedding of one side; the encoder shares the decoder's."""
        options = self.options("embedding")
        return Embedding(vocab=self.vocab_size, hidden=self.d_model, shared=side == "encoder", **options)

    def ends(self, side: str) -> dict[str, Any]:
        """The parts before and after the layers of one side."""
        return {
            "embed": self.embedding(side),
            "positions": self.positions(side),
            "embed_norm": self.norm() if self.embedding_norm else None,
            "final_norm": self.norm() if self.order == "pre" else None,
        }

    def head(self) -> Head:
        """The language model's head."""
        sizes = {"vocab": self.vocab_size, **self.options("head")}
        return Head(hidden=self.d_model, tied=self.tie_word_embeddings, **sizes)

    def architecture(self) -> Transformer:
        """Encoder and decoder, with separate embeddings and positions or one embedding for both."""
        self.check()
        decoder, encoder = self.stacks("decoder"), self.stacks("encoder")
        source = Encoder(stacks=encoder, apart=frozenset(self.separate_encoder_axes), **self.ends("encoder"))
        return Transformer(encoder=source, stacks=decoder, head=self.head(), **self.ends("decoder"))


class BartBase(EncoderDecoder):
    """The fields of BART and of relatives that read text the same way."""

    max_position_embeddings: PositiveInt = 1024
    scale_embedding: StrictBool = False
    normalize_before: StrictBool = False
    add_final_layer_norm: StrictBool = False
    add_bias_logits: StrictBool = False
    do_blenderbot_90_layernorm: StrictBool = False

    offset = 0
    """Rows of the position embeddings before the first position."""
    trained_positions = True
    """Whether positions are learned, not sinusoidal and stored."""
    required_values = {  # as in the class, for any older config
        "normalize_before": False,
        "add_final_layer_norm": False,
        "add_bias_logits": False,
        "do_blenderbot_90_layernorm": False,
    }
    reference_only = "scale_embedding"
    embedding_options = dict(scaled=attrgetter("scale_embedding"))
    context = property(attrgetter("max_position_embeddings"))

    def positions(self, side: str) -> Positions:
        rows = self.max_position_embeddings + self.offset
        return Positions(rows=rows, hidden=self.d_model, offset=self.offset, trained=self.trained_positions)


class Bart(BartBase):
    """BART: learned positions with two extra rows, and a norm after the embeddings."""

    sizes = dict(vocab=50265)
    normalize_embedding: StrictBool = True
    static_position_embeddings: StrictBool = False

    offset = 2
    required_values = {"normalize_embedding": True, "static_position_embeddings": False, "tie_word_embeddings": True}
    dropouts = DROPOUTS
    pooler_modules = {"pooler": "classification_head.dense", "classifier": "classification_head.out_proj"}
    task_heads = {
        **BartBase.task_heads,
        "ForSequenceClassification": TaskHead(
            "AutoModelForSequenceClassification", "classes", pooler=True, bias=True, paths=pooler_modules
        ),
    }
    pooler_options = dict(reads="end")

    def hf_unsupported(self) -> str | None:
        asks = "it searches the ids for the end-of-text token, but the test ids are random"
        return asks if self.task_head.head == "classes" else None


class PLBart(Bart):
    """PLBART: BART for programs. Only default sizes and scaled embeddings differ."""

    sizes = dict(vocab=50005)
    defaults = dict(d_model=768, scale_embedding=True, **both_sides(6, 12, 3072))
    dropouts = MORE_DROPOUT


class Mvp(Bart):
    """MVP: BART, without the optional prompts of its class."""

    sizes = dict(vocab=50267)
    use_prompt: StrictBool = False
    prompt_length: NonNegativeInt = 100
    prompt_mid_dim: NonNegativeInt = 800
    reference_only = "prompt_length prompt_mid_dim"
    required_values = {"use_prompt": False}


class PreNormBart(Bart):
    """BART's pre-norm relatives. The fields of their configs for this are ignored by the classes."""

    defaults = dict(normalize_before=True, add_final_layer_norm=True, normalize_embedding=False)
    order = "pre"
    offset, embedding_norm = 0, False
    required_values = defaults
    task_heads = BartBase.task_heads
    module_names = {"encoder.final_norm": ".encoder.layer_norm", "final_norm": ".decoder.layer_norm"}


class MBart(PreNormBart):
    """mBART: BART with a norm before every sublayer, and a last one on each side."""

    defaults = dict(normalize_embedding=True)
    offset, embedding_norm = 2, True
    required_values = defaults


class Pegasus(PreNormBart):
    """Pegasus: a norm before every sublayer, and sinusoidal positions that are stored but not trained."""

    defaults = dict(static_position_embeddings=True)
    trained_positions = False
    required_values = defaults


class Blenderbot(PreNormBart):
    """Blenderbot: mBART's layers, with positions from the first row and no norm after the embeddings."""

    sizes = dict(vocab=8008, context=128)
    defaults = {"d_model": 2560, **both_sides(24, 32, 10240), "encoder_layers": 2}
    ignored_fields = "layernorm_variant"


class BlenderbotSmall(Bart):
    """Blenderbot small: BART's layers, with positions from the first row; the decoder adds them after the norm."""

    sizes = dict(context=512)
    defaults = dict(d_model=512, do_blenderbot_90_layernorm=True, **both_sides(8, 16, 2048))
    offset = 0
    required_values = {"do_blenderbot_90_layernorm": True}
    ignored_fields = "layernorm_variant"
    task_heads = BartBase.task_heads

    def ends(self, side: str) -> dict[str, Any]:
        """The decoder's embeddings are never scaled."""
        ends = super().ends(side)
        if side == "encoder":
            return ends
        return {
            **ends,
            "embed": replace(ends["embed"], scaled=False),
            "positions": replace(ends["positions"], layout="after_norm"),
        }


class M2M100(PreNormBart):
    """M2M-100 and NLLB: a norm before every sublayer, and sinusoidal positions that are not stored."""

    sizes = dict(vocab=128112)
    defaults = dict(activation_function="relu", scale_embedding=True)
    offset = 2
    dropouts = MORE_DROPOUT

    def positions(self, side: str) -> Positions:
        return replace(super().positions(side), layout="sines_then_cosines")


class Marian(BartBase):
    """Marian: the Transformer as first published, with sinusoidal positions that are stored but not trained."""

    sizes = dict(vocab=58101)
    decoder_vocab_size: PositiveInt | None = None
    share_encoder_decoder_embeddings: StrictBool = True
    normalize_embedding: StrictBool = False
    static_position_embeddings: StrictBool = True

    embedding_norm, trained_positions = False, False
    required_values = {"normalize_embedding": False, "static_position_embeddings": True}
    ignored_fields = "num_layers"
    dropouts = DROPOUTS
    task_heads = {"MTModel": SEQ2SEQ, "Model": BODY}
    target_vocab_size = property(lambda self: self.decoder_vocab_size or self.vocab_size)
    head_options = dict(vocab=attrgetter("target_vocab_size"))

    def check(self) -> None:
        shared, target = self.share_encoder_decoder_embeddings, self.target_vocab_size
        if shared and not self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", False)
        if shared and target != self.vocab_size:
            raise ConfigError(
                f"decoder_vocab_size = {target:,} contradicts vocab_size = {self.vocab_size:,}: {SHARED}",
                "share_encoder_decoder_embeddings=false gives each side its own",
            )
        super().check()

    def hf_module_names(self) -> Mapping[str, str]:
        names = super().hf_module_names()
        return names if self.share_encoder_decoder_embeddings else {**names, **EMBEDDING_PER_SIDE}

    def embedding(self, side: str) -> Embedding:
        if side == "decoder":
            return replace(super().embedding(side), vocab=self.target_vocab_size)
        return replace(super().embedding(side), shared=self.share_encoder_decoder_embeddings)


class FSMT(BartBase):
    """FSMT: fairseq's translation models, BART's layers with an embedding on each side."""

    sizes = dict(vocab=42024)
    defaults = dict(activation_function="relu", scale_embedding=True, tie_word_embeddings=False)
    src_vocab_size: PositiveInt = 42024
    pad_token_id: NonNegativeInt = 1

    embedding_norm = False
    attribute_map = {"tgt_vocab_size": "vocab_size"}
    ignored_fields = "langs decoder"
    task_heads = {"ForConditionalGeneration": SEQ2SEQ}
    module_names = {**EMBEDDING_PER_SIDE, "lm_head": ".decoder.output_projection"}

    def check(self) -> None:
        if self.tie_word_embeddings:
            hint = "tie_word_embeddings=false gives each side its own"
            self.agrees("src_vocab_size", self.vocab_size, "tgt_vocab_size", f": {SHARED}", hint)
        super().check()

    def hf_module_names(self) -> Mapping[str, str]:
        """A shared embedding has the encoder's name."""
        names = super().hf_module_names()
        return {**names, "embed": names["encoder.embed"]} if self.tie_word_embeddings else names

    def positions(self, side: str) -> Positions:
        first = self.pad_token_id + 1
        return Positions(rows=self.max_position_embeddings + first, hidden=self.d_model, offset=first)

    def embedding(self, side: str) -> Embedding:
        if side == "decoder":
            return super().embedding(side)
        return replace(super().embedding(side), vocab=self.src_vocab_size, shared=self.tie_word_embeddings)


class Whisper(EncoderDecoder):
    """Whisper: an encoder of audio after two convolutions, a decoder of text; norms before the sublayers."""

    sizes = dict(vocab=51865)
    defaults = dict(d_model=384, **both_sides(4, 6, 1536))
    num_mel_bins: PositiveInt = 80
    max_source_positions: PositiveInt = 1500
    max_target_positions: PositiveInt = 448

    order = "pre"
    embedding_norm, key_bias = False, False
    separate_encoder_axes = "KHFP"
    attribute_map = {"num_key_value_heads": "encoder_attention_heads"}
    ignored_fields = """scale_embedding forced_decoder_ids use_weighted_layer_sum classifier_proj_size
        apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks mask_feature_prob mask_feature_length
        mask_feature_min_masks median_filter_width lang_ids lang_to_id task_to_id is_multilingual alignment_heads"""
    task_heads = {"ForConditionalGeneration": TaskHead("AutoModelForSpeechSeq2Seq"), "Model": BODY}
    hf_fixed_source = True
    constant_axes = frozenset({"G", "Fp", "Kf"})  # also those of the convolutions
    module_names = {
        "embed": ".decoder.embed_tokens",
        "encoder.stem.conv1": ".encoder.conv1",
        "encoder.stem.conv2": ".encoder.conv2",
        **PreNormBart.module_names,
        "lm_head": "proj_out",
    }
    context = property(attrgetter("max_target_positions"))
    source = property(attrgetter("max_source_positions"))

    def positions(self, side: str) -> Positions:
        if side == "encoder":
            return Positions(rows=self.max_source_positions, hidden=self.d_model, trained=False)
        return Positions(rows=self.max_target_positions, hidden=self.d_model)

    def ends(self, side: str) -> dict[str, Any]:
        ends = super().ends(side)
        stem = Stem(bins=self.num_mel_bins, hidden=self.d_model, every=None)
        return {**ends, "embed": stem} if side == "encoder" else ends
