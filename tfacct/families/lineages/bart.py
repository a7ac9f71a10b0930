"""BART and its relatives: encoder and decoder of one width, with learned absolute positions."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Order, Stack
from tfacct.architecture.parts import Attention, CrossAttention, Embedding, FeedForward, Head, Norm, Pooler, Positions
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.families.lineages.family import Family, attention_modules
from tfacct.families.lineages.vocabulary import (
    BODY,
    SEQ2SEQ,
    LayerCount,
    NonNegativeInt,
    PositiveInt,
    StrictBool,
    StrictStr,
    TaskHead,
    divide_exactly,
)


def side_modules(ours: str, theirs: str) -> dict[str, str]:
    """Modules of one side: embeddings, layers, and the decoder's cross-attention."""
    layers = f"model.{theirs}.layers.*"
    heads = {"attn": "self_attn"} | ({} if ours else {"cross": "encoder_attn"})
    block = {"mlp.up_proj": "fc1", "mlp.down_proj": "fc2", "mlp_norm": "final_layer_norm"}
    for name, their in heads.items():
        own = attention_modules(their, o="out_proj") | {"attn_norm": f"{their}_layer_norm"}
        block |= {our.replace("attn", name, 1): module for our, module in own.items()}
    tables = {"pos_embed": "embed_positions", "embed_norm": "layernorm_embedding"}
    return {
        **{f"{ours}{name}": f"model.{theirs}.{their}" for name, their in tables.items()},
        **{f"{ours}blocks.*.{name}": f"{layers}.{their}" for name, their in block.items()},
    }


class Bart(Family):
    """BART: learned positions with two extra rows, and a norm after the embeddings."""

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
    vocab_size: PositiveInt = 50265
    max_position_embeddings: PositiveInt = 1024
    scale_embedding: StrictBool = False
    normalize_before: StrictBool = False
    add_final_layer_norm: StrictBool = False
    add_bias_logits: StrictBool = False
    do_blenderbot_90_layernorm: StrictBool = False
    normalize_embedding: StrictBool = True
    static_position_embeddings: StrictBool = False

    order: ClassVar[Order] = "post"
    """Norms after (`post`) or before (`pre`) each sublayer; `pre` has one after the last layer of each side too."""
    offset = 2
    """Rows of the position embeddings before the first position."""
    embedding_norm = True
    """Whether a norm follows the embeddings."""
    sinusoidal = False
    """Whether positions are sinusoidal: stored, not trained."""
    required_values = {  # what the class does, whatever older configs say
        "is_encoder_decoder": True,
        "normalize_before": False,
        "add_final_layer_norm": False,
        "add_bias_logits": False,
        "do_blenderbot_90_layernorm": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
    }
    reference_only = f"{' '.join(required_values)} scale_embedding"
    dropouts: ClassVar[Mapping[str, tuple[str, float | None]]] = {
        "embedding": ("dropout", 0.1),
        "residual": ("dropout", 0.1),
        "attention": ("attention_dropout", 0.0),
        "mlp_product": ("activation_dropout", 0.0),
    }
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }
    ignored_fields = """encoder_layerdrop decoder_layerdrop init_std save_step force_bos_token_to_be_generated
        add_cross_attention extra_pos_embeddings"""
    constant_axes = frozenset("G")
    pooler_modules = {"pooler": "classification_head.dense", "classifier": "classification_head.out_proj"}
    task_heads = {
        "ForConditionalGeneration": SEQ2SEQ,
        "Model": BODY,
        "ForSequenceClassification": TaskHead(
            "AutoModelForSequenceClassification", "classes", pooler=True, bias=True, paths=pooler_modules
        ),
    }
    module_names = {
        "embed": "model.shared",
        **side_modules("encoder.", "encoder"),
        **side_modules("", "decoder"),
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """max_position_embeddings, of the source and of the target."""
        return self.max_position_embeddings

    def pooler(self, hidden: Any) -> Pooler:
        """The projection before a sequence classifier."""
        return Pooler(hidden=hidden, reads="end")

    def hf_unsupported(self) -> str | None:
        asks = "it looks for the end of each text among its ids, and those that it is asked with are random"
        return asks if self.task_head.head == "classes" else None

    def norm(self) -> Norm:
        return Norm(hidden=self.d_model, kind="layer")

    def stack(self, side: str) -> Stack:
        """The layers of one side. Raises ConfigError."""
        hidden, heads = self.d_model, getattr(self, f"{side}_attention_heads")
        size = divide_exactly(hidden, heads, f"d_model by {side}_attention_heads")
        how: dict[str, Any] = {
            "hidden": hidden,
            "kv_heads": heads,
            "group": 1,
            "head_dim": size,
            "qkv_bias": True,
            "out_bias": True,
        }
        width = getattr(self, f"{side}_ffn_dim")
        network = FeedForward(hidden=hidden, width=width, bias=True, activation=self.activation_function)
        cross: list[Any] = [CrossAttention(**how)] if side == "decoder" else []
        parts = (Attention(**how, causal=side == "decoder"), *cross, network)
        return Stack(Block.of(*parts, norm=self.norm(), order=self.order), getattr(self, f"{side}_layers"))

    def architecture(self) -> Transformer:
        """One embedding for both sides and the head; each side has positions."""
        self.check()
        if not self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", False)
        rows, offset, trained = self.max_position_embeddings + self.offset, self.offset, not self.sinusoidal
        positions = Positions(rows=rows, hidden=self.d_model, offset=offset, trained=trained)
        ends: dict[str, Any] = {
            "positions": positions,
            "embed_norm": self.norm() if self.embedding_norm else None,
            "final_norm": self.norm() if self.order == "pre" else None,
        }
        decoder, encoder = self.stack("decoder"), self.stack("encoder")
        table: dict[str, Any] = {"vocab": self.vocab_size, "hidden": self.d_model, "scaled": self.scale_embedding}
        return Transformer(
            encoder=Encoder(Embedding(**table, shared=True), (encoder,), apart=frozenset("KHF"), **ends),
            embed=Embedding(**table),
            stacks=(decoder,),
            head=Head(hidden=self.d_model, vocab=self.vocab_size, tied=self.tie_word_embeddings),
            **ends,
        )


class PLBart(Bart):
    """PLBART: BART for programs. Only default sizes and scaled embeddings differ."""

    defaults = dict(
        vocab_size=50005,
        d_model=768,
        scale_embedding=True,
        encoder_layers=6,
        encoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_layers=6,
        decoder_attention_heads=12,
        decoder_ffn_dim=3072,
    )
    dropouts = {**Bart.dropouts, "attention": ("attention_dropout", 0.1)}


class Mvp(Bart):
    """MVP: BART, without the optional prompts of its class."""

    defaults = dict(vocab_size=50267)
    use_prompt: StrictBool = False
    prompt_length: NonNegativeInt = 100
    prompt_mid_dim: NonNegativeInt = 800
    reference_only = "use_prompt prompt_length prompt_mid_dim"
    required_values = {**Bart.required_values, "use_prompt": False}
    dropouts = PLBart.dropouts


class PreNormBart(Bart):
    """BART's pre-norm relatives. Their configs say so in fields that the classes do not read."""

    defaults = dict(normalize_before=True, add_final_layer_norm=True, normalize_embedding=False)
    order = "pre"
    offset, embedding_norm = 0, False
    required_values = {**Bart.required_values, **defaults}
    task_heads = {"ForConditionalGeneration": SEQ2SEQ, "Model": BODY}
    module_names = {"encoder.final_norm": "model.encoder.layer_norm", "final_norm": "model.decoder.layer_norm"}


class MBart(PreNormBart):
    """mBART: BART with a norm before every sublayer, and a last one on each side."""

    defaults = dict(normalize_embedding=True)
    offset, embedding_norm = 2, True
    required_values = {**PreNormBart.required_values, **defaults}


class Pegasus(PreNormBart):
    """Pegasus: a norm before every sublayer, and sinusoidal positions that are stored but not trained."""

    defaults = dict(static_position_embeddings=True)
    sinusoidal = True
    required_values = {**PreNormBart.required_values, **defaults}


class Blenderbot(PreNormBart):
    """Blenderbot: mBART's layers, with positions from the first row and no norm after the embeddings."""

    defaults = dict(
        vocab_size=8008,
        d_model=2560,
        max_position_embeddings=128,
        encoder_layers=2,
        encoder_attention_heads=32,
        encoder_ffn_dim=10240,
        decoder_layers=24,
        decoder_attention_heads=32,
        decoder_ffn_dim=10240,
    )
    ignored_fields = "layernorm_variant"
