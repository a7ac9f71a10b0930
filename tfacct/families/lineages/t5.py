"""T5 and its relatives: encoder and decoder of pre-norm layers with a relative position bias."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, CrossAttention, Embedding, FeedForward, Head, Norm, RelativeBias
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.base.errors import ConfigError
from tfacct.families.lineages.family import Family, attention_modules
from tfacct.families.lineages.vocabulary import (
    BODY,
    SEQ2SEQ,
    TOKENS_CLASSIFIED,
    LayerCount,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    TaskHead,
)

MLPS = {"encoder.blocks.*.mlp": "encoder.block.*.layer.1", "blocks.*.mlp": "decoder.block.*.layer.2"}
RELATIVE_BIAS = "SelfAttention.relative_attention_bias"


def sublayer_modules(ours: str, name: str, theirs: str, module: str) -> dict[str, str]:
    """Attention and its norm, in one sublayer of the class."""
    own = attention_modules(f"{theirs}.{module}", *"qkvo")
    heads = {f"{ours}.{our.replace('attn', name, 1)}": their for our, their in own.items()}
    return {f"{ours}.{name}_norm": f"{theirs}.layer_norm", **heads}


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
        **{f"{ours}_norm": f"{theirs}.layer_norm" for ours, theirs in MLPS.items()},
        **{f"{ours}.down_proj": f"{theirs}.DenseReluDense.wo" for ours, theirs in MLPS.items()},
        "encoder.final_norm": "encoder.final_layer_norm",
        "final_norm": "decoder.final_layer_norm",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """n_positions."""
        return self.n_positions

    def hf_module_names(self) -> Mapping[str, str]:
        """The MLP has two matrices, or three if gated. An encoder alone has no names of the decoder."""
        names = {"gate_proj": "wi_0", "up_proj": "wi_1"} if self._mlp[0] else {"up_proj": "wi"}
        ours = {f"{at}.{n}": f"{to}.DenseReluDense.{their}" for at, to in MLPS.items() for n, their in names.items()}
        table = {**super().hf_module_names(), **ours}
        if self.task_head.side is None:
            return table
        encoder = {our.removeprefix("encoder."): their for our, their in table.items() if our.startswith("encoder.")}
        return {"embed": table["embed"], **encoder}

    @property
    def tied(self) -> bool:
        """Whether the head is tied; null means yes."""
        return self.tie_word_embeddings is not False

    def hf_unsupported(self) -> str | None:
        """The class ties the head, if it has one, whatever the config says."""
        tied = self.tied or self.task_head.head != "lm"
        return None if tied else "it ties the head although tie_word_embeddings = false"

    @property
    def _mlp(self) -> tuple[bool, str]:
        """Whether the MLP is gated, and its activation. Raises ConfigError."""
        *gated, name = self.feed_forward_proj.split("-")
        if gated not in ([], ["gated"]) or not name:
            raise ConfigError(
                f'feed_forward_proj = "{self.feed_forward_proj}" is not understood', "for example relu or gated-gelu"
            )
        if self.is_gated_act not in (None, bool(gated)):
            says = f"is_gated_act = {str(self.is_gated_act).lower()}"
            raise ConfigError(
                f'{says} contradicts feed_forward_proj = "{self.feed_forward_proj}": gated means three matrices',
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
        own: dict[str, Any] = {"biased": True, "buckets": None if shared else buckets, "furthest": furthest}
        encoder = Stack(Block.of(Attention(**sizes, **own, causal=False), network, norm=norm), self.num_layers)
        if self.task_head.side is not None:
            table = Embedding(vocab=vocab, hidden=hidden)
            return Transformer(table, (encoder,), norm, head=None, bias=shared)
        decoder = Block.of(Attention(**sizes, **own, causal=True), CrossAttention(**sizes), network, norm=norm)
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

    defaults = dict(vocab_size=250112, d_ff=1024, num_layers=8, num_heads=6, feed_forward_proj="gated-gelu")
    task_heads = {task_head: head for task_head, head in T5.task_heads.items() if task_head != "WithLMHeadModel"}
    scaled_tied_head = False


class UMT5(MT5):
    """umT5: mT5 with a relative position bias in every layer."""

    bias_tables = "layers"
    scaled_tied_head = True

    def hf_module_names(self) -> Mapping[str, str]:
        """As T5's, with the bias in the layers."""
        sides = {"": "encoder"} if self.task_head.side else {"encoder.": "encoder", "": "decoder"}
        own: dict[str, Any] = {
            f"{o}blocks.*.attn.rel_bias": f"{t}.block.*.layer.0.{RELATIVE_BIAS}" for o, t in sides.items()
        }
        theirs = super().hf_module_names().items()
        return {**{ours: their for ours, their in theirs if not ours.endswith("rel_bias")}, **own}
