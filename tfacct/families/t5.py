"""T5 and its relatives: encoder and decoder of pre-norm layers with a relative position bias."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Literal

from tfacct.architecture.blocks import Block, Stack, stacks
from tfacct.architecture.parts import (
    Attention,
    CrossAttention,
    DistanceBias,
    Embedding,
    FeedForward,
    Head,
    Norm,
    RelativeBias,
)
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import DecoderBase, Layer
from tfacct.families.family import Family, attention_modules, build, mlp_modules, submodules
from tfacct.families.family_config import FamilyConfig, validate
from tfacct.families.fields import JsonDict, LayerCount, PositiveFloat, PositiveInt, StrictBool, StrictStr
from tfacct.families.gemma import Gemma2
from tfacct.families.task_heads import BODY, SEQ2SEQ, TOKENS_CLASSIFIED, TaskHead

MLPS = {"encoder.blocks.*.mlp": "encoder.block.*.layer.1", "blocks.*.mlp": "decoder.block.*.layer.2"}
RELATIVE_BIAS = "SelfAttention.relative_attention_bias"


def sublayer_modules(path: str, name: str, sublayer: str, module: str) -> dict[str, str]:
    """Attention and its norm, in one sublayer of the class."""
    names = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "scores": "", "values": ""}
    heads = submodules(f"{path}.{name}", f"{sublayer}.{module}", **names)
    return {f"{path}.{name}_norm": f"{sublayer}.layer_norm", **heads}


class T5(Family):
    """T5: encoder and decoder of pre-norm layers, a relative position bias, an independent head size."""

    vocab_size: PositiveInt = 32128
    d_model: PositiveInt = 512
    d_kv: PositiveInt = 64
    d_ff: PositiveInt = 2048
    num_layers: LayerCount = 6
    num_decoder_layers: LayerCount | None = None
    num_heads: PositiveInt = 8
    relative_attention_num_buckets: PositiveInt = 32
    feed_forward_proj: StrictStr = "relu"
    tie_word_embeddings: StrictBool | None = True
    scale_decoder_outputs: StrictBool | None = None  # false from transformers 5 on for a head that is not tied
    is_encoder_decoder: StrictBool = True
    is_gated_act: StrictBool | None = None
    n_positions: PositiveInt = 512
    relative_attention_max_distance: PositiveInt = 128
    layer_norm_epsilon: PositiveFloat = 1e-6

    reference_only = "-feed_forward_proj is_encoder_decoder is_gated_act n_positions relative_attention_max_distance"
    dropouts = dict.fromkeys(("embedding", "residual", "attention", "mlp_product", "final"), ("dropout_rate", 0.1))
    null_means = {"is_gated_act": False}
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    }
    ignored_fields = "initializer_factor dense_act_fn"
    task_heads = {
        "ForConditionalGeneration": SEQ2SEQ,
        "WithLMHeadModel": SEQ2SEQ,
        "Model": BODY,
        "EncoderModel": TaskHead("AutoModelForTextEncoding", "none", side="encoder"),
        "ForTokenClassification": replace(TOKENS_CLASSIFIED, body="transformer.", side="encoder"),
    }
    base_model_prefix = ""
    constant_axes = frozenset("G")
    bias_tables: ClassVar[Literal["sides", "layers"]] = "sides"
    """Where the relative position bias is: one per side, or one per layer."""
    scaled_tied_head = True
    """Whether a tied head scales its input."""
    keep_in_fp32_modules = ("wo",)
    module_names = {
        "embed": "shared",
        "encoder.rel_bias": f"encoder.block.0.layer.0.{RELATIVE_BIAS}",
        "rel_bias": f"decoder.block.0.layer.0.{RELATIVE_BIAS}",
        **sublayer_modules("encoder.blocks.*", "attn", "encoder.block.*.layer.0", "SelfAttention"),
        **sublayer_modules("blocks.*", "attn", "decoder.block.*.layer.0", "SelfAttention"),
        **sublayer_modules("blocks.*", "cross", "decoder.block.*.layer.1", "EncDecAttention"),
        **{f"{path}_norm": f"{module}.layer_norm" for path, module in MLPS.items()},
        **{f"{path}.down_proj": f"{module}.DenseReluDense.wo" for path, module in MLPS.items()},
        "encoder.final_norm": "encoder.final_layer_norm",
        "final_norm": "decoder.final_layer_norm",
        "lm_head": "lm_head",
    }
    context = property(attrgetter("n_positions"))

    def hf_module_names(self) -> Mapping[str, str]:
        """The MLP has two matrices, or three if gated. An encoder alone has no names of the decoder."""
        names = {"gate_proj": "wi_0", "up_proj": "wi_1"} if self._mlp[0] else {"up_proj": "wi"}
        mlps = {
            f"{at}.{n}": f"{to}.DenseReluDense.{hf_name}" for at, to in MLPS.items() for n, hf_name in names.items()
        }
        table = {**super().hf_module_names(), **mlps}
        if self.task_head.side is None:
            return table
        encoder = {
            path.removeprefix("encoder."): hf_name for path, hf_name in table.items() if path.startswith("encoder.")
        }
        return {"embed": table["embed"], **encoder}

    @property
    def tied(self) -> bool:
        """True if the head is tied; null means yes. transformers 5 writes that every head is."""
        return self.tie_word_embeddings is not False and self.scale_decoder_outputs is not False

    def hf_unsupported(self) -> str | None:
        """The class always ties the head, if it has one."""
        tied = self.tied or self.task_head.head != "lm"
        return None if tied else "it ties the head even with tie_word_embeddings = false"

    @property
    def _mlp(self) -> tuple[bool, str]:
        """True if the MLP is gated, and its activation. Raises ConfigError."""
        *gated, name = self.feed_forward_proj.split("-")
        if gated not in ([], ["gated"]) or not name:
            raise ConfigError(
                f'feed_forward_proj = "{self.feed_forward_proj}" is not supported', "for example relu or gated-gelu"
            )
        if self.is_gated_act not in (None, bool(gated)):
            says = f"is_gated_act = {str(self.is_gated_act).lower()}"
            raise ConfigError(
                f'{says} contradicts feed_forward_proj = "{self.feed_forward_proj}": gated MLPs have three matrices',
                "the class follows is_gated_act; without it, feed_forward_proj",
            )
        return bool(gated), "gelu_new" if gated and name == "gelu" else name

    def architecture(self) -> Transformer:
        """Pre-norm layers with a relative position bias and a last norm: both sides, or the encoder alone."""
        if not self.is_encoder_decoder and self.task_head.side is None:
            raise self.refused("is_encoder_decoder", False)
        vocab, hidden, heads = self.vocab_size, self.d_model, self.num_heads
        gated, activation = self._mlp
        norm = Norm(hidden=hidden, kind="rms", eps=self.layer_norm_epsilon)
        network = FeedForward(hidden=hidden, width=self.d_ff, gated=gated, activation=activation)
        buckets, furthest = self.relative_attention_num_buckets, self.relative_attention_max_distance
        bias = RelativeBias(buckets=buckets, kv_heads=heads, group=1, furthest=furthest, within=True)
        shared = bias if self.bias_tables == "sides" else None
        sizes: dict[str, Any] = {"hidden": hidden, "kv_heads": heads, "group": 1, "head_dim": self.d_kv, "scale": 1.0}
        bias_options: dict[str, Any] = {
            "distance_bias": DistanceBias(buckets=None if shared else buckets, furthest=furthest)
        }
        encoder = Stack(Block.of(Attention(**sizes, **bias_options, causal=False), network, norm=norm), self.num_layers)
        if self.task_head.side is not None:
            table = Embedding(vocab=vocab, hidden=hidden)
            return Transformer(table, (encoder,), norm, head=None, bias=shared)
        decoder = Block.of(Attention(**sizes, **bias_options), CrossAttention(**sizes), network, norm=norm)
        layers = self.num_layers if self.num_decoder_layers is None else self.num_decoder_layers
        table = Embedding(vocab=vocab, hidden=hidden, shared=True)
        scale = hidden**-0.5 if self.tied and self.scaled_tied_head else None
        return Transformer(
            encoder=Encoder(table, (encoder,), bias=shared, final_norm=norm),
            embed=Embedding(vocab=vocab, hidden=hidden),
            bias=shared,
            stacks=(Stack(decoder, layers),),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=vocab, tied=self.tied, scale=scale),
        )


class MT5(T5):
    """mT5: T5 version 1.1, gated and with an untied head, for many languages."""

    sizes = dict(vocab=250112)
    defaults = dict(d_ff=1024, num_layers=8, num_heads=6, feed_forward_proj="gated-gelu")
    task_heads = {task_head: head for task_head, head in T5.task_heads.items() if task_head != "WithLMHeadModel"}
    scaled_tied_head = False


class UMT5(MT5):
    """umT5: mT5 with a relative position bias in every layer."""

    bias_tables = "layers"
    scaled_tied_head = True

    def hf_module_names(self) -> Mapping[str, str]:
        """T5's module names, with the bias in the layers."""
        sides = {"": "encoder"} if self.task_head.side else {"encoder.": "encoder", "": "decoder"}
        biases: dict[str, Any] = {
            f"{o}blocks.*.attn.rel_bias": f"{t}.block.*.layer.0.{RELATIVE_BIAS}" for o, t in sides.items()
        }
        names = super().hf_module_names().items()
        return {**{path: hf_path for path, hf_path in names if not path.endswith("rel_bias")}, **biases}


T5GEMMA_LAYER = {
    "attn_norm": "pre_self_attn_layernorm",
    **attention_modules("self_attn"),
    "attn_post_norm": "post_self_attn_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    **mlp_modules("mlp"),
    "mlp_post_norm": "post_feedforward_layernorm",
}
T5GEMMA_CROSS = {
    "cross_norm": "pre_cross_attn_layernorm",
    **submodules("cross", "cross_attn", "q_proj k_proj v_proj o_proj", scores="", values=""),
    "cross_post_norm": "post_cross_attn_layernorm",
}


def side_modules(prefix: str, side: str, layer: Mapping[str, str]) -> dict[str, str]:
    """Modules of an encoder or a decoder: embedding, layers, last norm."""
    layers = {f"{prefix}blocks.*.{name}": f"{side}.layers.*.{hf_name}" for name, hf_name in layer.items()}
    return {f"{prefix}embed": f"{side}.embed_tokens", f"{prefix}final_norm": f"{side}.norm", **layers}


class GemmaSide(DecoderBase):
    """The encoder or the decoder of a model with separate configs for both."""

    ignored_fields = "cross_attention_hidden_size is_encoder_decoder"

    def stack(self, source_hidden: int | None = None) -> tuple[Stack, ...]:
        """All layers; those of a decoder read an encoder of width `source_hidden`. Raises ConfigError."""
        self.require_if_given({"use_bidirectional_attention": False})
        layers = self.layers()
        blocks = {layer: self.side_block(layer, source_hidden) for layer in dict.fromkeys(layers)}
        return stacks([blocks[layer] for layer in layers])


class T5GemmaSide(GemmaSide, Gemma2):
    """T5Gemma's encoder or decoder, with the defaults of its config class."""

    sizes = dict(vocab=256_000, hidden=2304, layers=26, heads=8)

    def side_block(self, layer: Layer, source_hidden: int | None) -> Block:
        """One layer. The encoder's windows extend to both sides."""
        norm, mlp = self.norm(), self.mlp(layer)
        attention: Any = self.attention(layer)
        if source_hidden is None:
            attention = replace(attention, causal=False, window=layer.window and 2 * layer.window + 1)
            return Block.of(attention, mlp, norm=norm, post_norm=norm)
        names = ("hidden", "kv_heads", "group", "head_dim", "qkv_bias", "out_bias", "softcap", "scale")
        sizes: dict[str, Any] = {name: getattr(attention, name) for name in names}
        other = None if source_hidden == self.hidden_size else source_hidden
        return Block.of(attention, CrossAttention(**sizes, source_hidden=other), mlp, norm=norm, post_norm=norm)


class GemmaEncoderDecoder(Family):
    """A model with separate configs for encoder and decoder."""

    encoder: JsonDict | None = None
    decoder: JsonDict | None = None
    vocab_size: PositiveInt | None = None
    tie_word_embeddings: StrictBool = True
    is_encoder_decoder: StrictBool = True

    reference_only = "vocab_size"
    required_values = {"is_encoder_decoder": True}
    task_heads = {"ForConditionalGeneration": SEQ2SEQ, "Model": BODY}
    module_names = {"lm_head": "lm_head.out_proj"}
    encoder_path: ClassVar[str] = "encoder"
    """The fields that hold the encoder's config."""

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields of the whole and of both sides."""
        config, defaulted, unknown = validate(cls, raw)
        assert isinstance(config, cls)
        for path in (cls.encoder_path, "decoder"):
            _, filled, others = config.side(path)
            defaulted |= {f"{path}.{name}": value for name, value in filled.items() if name != "tie_word_embeddings"}
            unknown += [f"{path}.{name}" for name in others]
        return config, defaulted, unknown

    def side(self, path: str) -> tuple[Any, dict[str, Any], list[str]]:
        """Checked fields of encoder or decoder, fields with default values, and unknown names. Raises ConfigError."""
        try:
            return self.read_side(path)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}", error.hint) from None

    def read_side(self, path: str) -> tuple[Any, dict[str, Any], list[str]]:
        """The same, with errors that do not name the side."""
        raise NotImplementedError

    @cached_property
    def sides(self) -> tuple[Any, Any]:
        """Encoder and decoder. Raises ConfigError."""
        return self.side(self.encoder_path)[0], self.side("decoder")[0]

    context = property(lambda self: self.sides[1].max_position_embeddings)
    source = property(lambda self: self.sides[0].max_position_embeddings)

    def side_embeddings(self) -> tuple[Embedding, Embedding]:
        """Embeddings of encoder and decoder."""
        encoder, decoder = self.sides
        return encoder.embedding(), decoder.embedding()

    def architecture(self) -> Transformer:
        """Each side has its own last norm. Raises ConfigError."""
        self.check()
        encoder, decoder = self.sides
        source, embedding = self.side_embeddings()
        return Transformer(
            encoder=Encoder(source, encoder.stack(), final_norm=encoder.norm()),
            embed=embedding,
            stacks=decoder.stack(encoder.hidden_size),
            final_norm=decoder.norm(),
            head=replace(decoder.head(), tied=self.tie_word_embeddings),
        )


class T5Gemma(GemmaEncoderDecoder):
    """T5Gemma: an encoder and a decoder of Gemma 2's layers, each with its own sizes; the decoder also has
    cross-attention."""

    module_names = {
        **side_modules("encoder.", "model.encoder", T5GEMMA_LAYER),
        **side_modules("", "model.decoder", {**T5GEMMA_LAYER, **T5GEMMA_CROSS}),
    }

    def read_side(self, path: str) -> tuple[Any, dict[str, Any], list[str]]:
        return validate(build(T5GemmaSide), getattr(self, path) or {})

    def check(self) -> None:
        super().check()
        # The class writes a vocab_size of 256,000 next to those of both sides, but does not read it.
        vocab = self.sides[1].vocab_size
        if self.vocab_size not in (None, 256_000, vocab):
            raise ConfigError(f"vocab_size = {self.vocab_size:,} contradicts {vocab:,} in decoder")
