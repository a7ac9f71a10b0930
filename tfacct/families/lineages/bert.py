"""BERT and its relatives: encoders with learned embeddings, post-norm layers and several task heads."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Order, Stack
from tfacct.architecture.parts import (
    Attention,
    Embedding,
    FeedForward,
    Head,
    Norm,
    Pooler,
    Positions,
    RelativeBias,
    Segments,
)
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._bert_like import ENCODING, LM_HEAD, PRETRAINED
from tfacct.families.lineages.family import Family, attention_modules, mlp_modules
from tfacct.families.lineages.vocabulary import (
    BODY,
    TOKENS,
    LayerCount,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    TaskHead,
    divide_exactly,
)

CLASSES = "ForSequenceClassification"
LM_BIAS = {"lm_head.bias": "lm_head.bias"}


def embedding_modules(body: str, *, segments: bool = True) -> dict[str, str]:
    """Embeddings of a class whose base model has this name."""
    names = {"embed": "word_embeddings", "pos_embed": "position_embeddings", "embed_norm": "LayerNorm"}
    names |= {"type_embed": "token_type_embeddings"} if segments else {}
    return {ours: f"{body}embeddings.{theirs}" for ours, theirs in names.items()}


def mlm_head_modules(
    at: str, dense: str = "dense", norm: str = "LayerNorm", decoder: str = "decoder"
) -> dict[str, str]:
    """A masked language model's head: a projection, a norm and the logits."""
    return {"lm_head.transform": f"{at}.{dense}", "lm_head.norm": f"{at}.{norm}", "lm_head": f"{at}.{decoder}"}


def sequence_classifier(pooler: str, classifier: str = "classifier") -> TaskHead:
    """The head that classifies sequences, with its pooler and classifier under these names."""
    return replace(ENCODING[CLASSES], paths={"pooler": pooler, "classifier": classifier})


class BertLike(Family):
    """An encoder like BERT, without assumptions about the names of its sizes."""

    base_model_prefix = "bert"
    layer_path = "bert.encoder.layer.*"
    task_heads = ENCODING
    constant_axes = frozenset("G")
    layer_module_names = {
        **attention_modules("attention.self", "query", "key", "value"),
        "attn.o_proj": "attention.output.dense",
        "attn_norm": "attention.output.LayerNorm",
        "mlp.up_proj": "intermediate.dense",
        "mlp.down_proj": "output.dense",
        "mlp_norm": "output.LayerNorm",
    }
    head_act: ClassVar[str | None] = None
    """Activation of the head's transform, if it is not that of the MLPs."""
    shared_weights = False
    """Whether all layers share one set of weights."""
    order: ClassVar[Order] = "post"
    """Norms after (`post`) or before (`pre`) each sublayer; `pre` has one after the last layer too."""
    head_owns_embedding = False
    """Whether the class declares its head before the base model, so that the tied embedding has the head's name."""

    @property
    def context(self) -> int:
        """Rows of the position embedding."""
        rows: int = self.max_position_embeddings
        return rows

    @property
    def embedding_width(self) -> int | None:
        """Width of the embeddings, if it is not hidden_size."""
        width: int = getattr(self, "embedding_size", self.hidden_size)
        return None if width == self.hidden_size else width

    @property
    def embedding_sizes(self) -> dict[str, Any]:
        """Width of the embeddings, as keyword arguments of a part."""
        return {"hidden": self.embedding_width or self.hidden_size, "narrow": self.embedding_width is not None}

    def norm(self) -> Norm:
        return Norm(hidden=self.hidden_size, kind="layer", eps=self.layer_norm_eps)

    def attention(self) -> Attention:
        """Multi-head attention with biases on all four projections, bidirectional."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        size = divide_exactly(hidden, heads, "hidden_size by num_attention_heads")
        how: dict[str, Any] = {"qkv_bias": True, "out_bias": True, "causal": False}
        return Attention(hidden=hidden, kv_heads=heads, group=1, head_dim=size, **how)

    def positions(self) -> Positions | None:
        return Positions(rows=self.max_position_embeddings, **self.embedding_sizes)

    def relative_bias(self) -> RelativeBias | None:
        """Relative position bias, in families that have one."""
        return None

    def hf_tensor_names(self) -> dict[str, str]:
        named_by_head = self.head_owns_embedding and self.task_head.head == "lm"
        return super().hf_tensor_names() | ({"embed.weight": "lm_head.decoder.weight"} if named_by_head else {})

    def check(self) -> None:
        super().check()
        if not self.tie_word_embeddings and self.task_head.head == "lm":
            raise self.refused("tie_word_embeddings", False)

    def architecture(self) -> Transformer:
        """Embeddings and a norm, bidirectional layers; a head of projection, activation, norm and tied logits."""
        self.check()
        vocab, hidden, eps, act = self.vocab_size, self.hidden_size, self.layer_norm_eps, self.hidden_act
        mlp = FeedForward(hidden=hidden, width=self.intermediate_size, bias=True, activation=act)
        block = Block.of(self.attention(), mlp, norm=self.norm(), order=self.order)
        wide: dict[str, Any] = (
            {} if self.embedding_width is None else {"width": self.embedding_width, "late": True, "bias": True}
        )
        segments = getattr(self, "type_vocab_size", 0)
        how: dict[str, Any] = {"bias": True, "transform": self.head_act or act, "eps": eps}
        return Transformer(
            embed=Embedding(vocab=vocab, hidden=hidden, **wide),
            positions=self.positions(),
            segments=Segments(rows=segments, **self.embedding_sizes) if segments else None,
            bias=self.relative_bias(),
            embed_norm=Norm(kind="layer", eps=eps, **self.embedding_sizes),
            stacks=(Stack(block, self.num_hidden_layers, once=self.shared_weights),),
            final_norm=self.norm() if self.order == "pre" else None,
            head=Head(hidden=hidden, vocab=vocab, width=self.embedding_width, tied=self.tie_word_embeddings, **how),
        )


class BertBase(BertLike):
    """The fields that most of them share."""

    vocab_size: PositiveInt = 30522
    hidden_size: PositiveInt = 768
    num_hidden_layers: LayerCount = 12
    num_attention_heads: PositiveInt = 12
    intermediate_size: PositiveInt = 3072
    max_position_embeddings: PositiveInt = 512
    tie_word_embeddings: StrictBool = True
    hidden_act: StrictStr = "gelu"
    layer_norm_eps: PositiveFloat = 1e-12

    dropouts: ClassVar[Mapping[str, tuple[str, float | None]]] = {
        "embedding": ("hidden_dropout_prob", 0.1),
        "residual": ("hidden_dropout_prob", 0.1),
        "attention": ("attention_probs_dropout_prob", 0.1),
        "classifier": ("classifier_dropout", None),
    }


class DecoderCapable(BertBase):
    """Classes that can be decoders too, which is not supported."""

    type_vocab_size: PositiveInt = 2
    is_decoder: StrictBool = False
    position_embedding_type: StrictStr = "absolute"
    reference_only = "is_decoder"
    required_values = {"position_embedding_type": "absolute", "is_decoder": False}


class Bert(DecoderCapable):
    """BERT: bidirectional attention, post-norm layers, and a head that predicts masked tokens."""

    ignored_fields = """directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
        pooler_size_per_head pooler_type"""
    pretraining_modules = {"pooler": "bert.pooler.dense", "classifier": "cls.seq_relationship"}
    sequence_head = sequence_classifier("bert.pooler.dense")
    next_sentence_head = replace(
        sequence_head,
        auto="AutoModelForNextSentencePrediction",
        paths=pretraining_modules,
        scores=2,
        obeys=False,
        picks=False,
    )
    task_heads = {
        **ENCODING,
        CLASSES: sequence_head,
        "ForPreTraining": replace(PRETRAINED, paths=pretraining_modules, scores=2, obeys=False),
        "ForNextSentencePrediction": next_sentence_head,
    }
    module_names = {
        **embedding_modules("bert."),
        **mlm_head_modules("cls.predictions", "transform.dense", "transform.LayerNorm"),
    }
    tensor_names = {"lm_head.bias": "cls.predictions.bias"}


class Roberta(DecoderCapable):
    """RoBERTa: BERT's encoder, with positions counted from the row after the padding token's."""

    defaults = dict(vocab_size=50265)
    pad_token_id: NonNegativeInt = 1
    reference_only = "pad_token_id"
    head_act = "gelu"
    base_model_prefix = "roberta"
    layer_path = "roberta.encoder.layer.*"
    module_names = {**embedding_modules("roberta."), **LM_HEAD}
    tensor_names = LM_BIAS

    @property
    def offset(self) -> int:
        """Rows of the position embedding before the first position."""
        return self.pad_token_id + 1

    @property
    def context(self) -> int:
        return self.max_position_embeddings - self.offset

    def positions(self) -> Positions:
        """Learned positions. Raises ConfigError if no row is left."""
        if self.context < 1:
            raise ConfigError(
                f"max_position_embeddings = {self.max_position_embeddings:,} leaves no position behind"
                f" pad_token_id = {self.pad_token_id:,}"
            )
        return Positions(rows=self.max_position_embeddings, offset=self.offset, **self.embedding_sizes)


class XLMRoberta(Roberta):
    """XLM-RoBERTa: RoBERTa, for many languages. Only the default vocabulary differs."""

    defaults = dict(vocab_size=30522)
    head_owns_embedding = True


class Camembert(XLMRoberta):
    """CamemBERT: RoBERTa, for French. Only the default vocabulary differs."""


class Electra(DecoderCapable):
    """ELECTRA: BERT's encoder, embeddings may be narrower than the model; a discriminator, or the generator."""

    defaults = dict(hidden_size=256, num_attention_heads=4, intermediate_size=1024)
    embedding_size: PositiveInt = 128
    ignored_fields = "summary_type summary_use_proj summary_activation"
    discriminator_modules = {
        "pooler": "discriminator_predictions.dense",
        "classifier": "discriminator_predictions.dense_prediction",
    }
    discriminator = replace(
        TOKENS, auto="AutoModelForPreTraining", pooler=True, paths=discriminator_modules, scores=1, obeys=False
    )
    task_heads = {**ENCODING, "Model": BODY, "ForPreTraining": discriminator}
    head_act = "gelu"
    base_model_prefix = "electra"
    layer_path = "electra.encoder.layer.*"
    module_names = {
        **embedding_modules("electra."),
        "embed.project": "electra.embeddings_project",
        **mlm_head_modules("generator_predictions"),
        "lm_head": "generator_lm_head",
    }

    def pooler(self, hidden: Any) -> Pooler:
        """Projection of the first position and GELU; the discriminator's of each position."""
        if self.task_head is self.discriminator:
            return Pooler(hidden=hidden, reads="each", activation=self.hidden_act)
        return Pooler(hidden=hidden, activation="gelu")


class Albert(BertBase):
    """ALBERT: BERT's encoder, with one layer's weights for all layers, and embeddings narrower than the model."""

    defaults = dict(
        vocab_size=30000, hidden_size=4096, num_attention_heads=64, intermediate_size=16384, hidden_act="gelu_new"
    )
    embedding_size: PositiveInt = 128
    type_vocab_size: PositiveInt = 2
    position_embedding_type: StrictStr = "absolute"
    num_hidden_groups: PositiveInt = 1
    inner_group_num: PositiveInt = 1
    dropouts = dict(
        embedding=("hidden_dropout_prob", 0.0),
        residual=("hidden_dropout_prob", 0.0),
        attention=("attention_probs_dropout_prob", 0.0),
    )
    required_values = {"position_embedding_type": "absolute", "num_hidden_groups": 1, "inner_group_num": 1}
    ignored_fields = "gap_size net_structure_type num_memory_blocks down_scale_factor"
    task_heads = {
        **ENCODING,
        "Model": replace(ENCODING["Model"], paths={"pooler": "pooler"}),
        CLASSES: sequence_classifier("albert.pooler"),
        "ForPreTraining": replace(
            PRETRAINED, paths={"pooler": "albert.pooler", "classifier": "sop_classifier.classifier"}
        ),
    }
    base_model_prefix = "albert"
    layer_path = "albert.encoder.albert_layer_groups.0.albert_layers.0"
    shared_weights = True
    module_names = {
        **embedding_modules("albert."),
        "embed.project": "albert.encoder.embedding_hidden_mapping_in",
        **mlm_head_modules("predictions"),
    }
    tensor_names = {"lm_head.bias": "predictions.bias"}
    layer_module_names = {
        **attention_modules("attention", "query", "key", "value", "dense"),
        "attn_norm": "attention.LayerNorm",
        "mlp.up_proj": "ffn",
        "mlp.down_proj": "ffn_output",
        "mlp_norm": "full_layer_layer_norm",
    }

    @property
    def embedding_width(self) -> int:
        """The projection exists even if the embeddings are as wide as the model."""
        return self.embedding_size


class DistilBert(BertLike):
    """DistilBERT: BERT's encoder with half the layers, and without segments and pooler."""

    vocab_size: PositiveInt = 30522
    dim: PositiveInt = 768
    n_layers: LayerCount = 6
    n_heads: PositiveInt = 12
    hidden_dim: PositiveInt = 3072
    max_position_embeddings: PositiveInt = 512
    tie_word_embeddings: StrictBool = True
    activation: StrictStr = "gelu"

    hidden_size = property(lambda self: self.dim)
    num_hidden_layers = property(lambda self: self.n_layers)
    num_attention_heads = property(lambda self: self.n_heads)
    intermediate_size = property(lambda self: self.hidden_dim)
    hidden_act = property(lambda self: self.activation)
    layer_norm_eps = 1e-12
    attribute_map = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
    dropouts = dict(
        embedding=("dropout", 0.1),
        mlp=("dropout", 0.1),
        attention=("attention_dropout", 0.1),
        classifier=("seq_classif_dropout", 0.2),
    )
    ignored_fields = "sinusoidal_pos_embds tie_weights_"
    task_heads = {**ENCODING, "Model": BODY, CLASSES: sequence_classifier("pre_classifier")}
    base_model_prefix = "distilbert"
    layer_path = "distilbert.transformer.layer.*"
    module_names = {
        **embedding_modules("distilbert.", segments=False),
        "lm_head.transform": "vocab_transform",
        "lm_head.norm": "vocab_layer_norm",
        "lm_head": "vocab_projector",
    }
    layer_module_names = {
        **attention_modules("attention", "q_lin", "k_lin", "v_lin", "out_lin"),
        **mlp_modules("ffn", "lin1", "lin2", None),
        "attn_norm": "sa_layer_norm",
        "mlp_norm": "output_layer_norm",
    }

    def pooler(self, hidden: Any) -> Pooler:
        """Projection of the first position and ReLU."""
        return Pooler(hidden=hidden, activation="relu")
