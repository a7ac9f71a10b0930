"""BERT and its relatives: encoders with learned embeddings, post-norm layers and several task heads."""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar

from tfacct.architecture.blocks import Order, Stack
from tfacct.architecture.parts import (
    DistanceBias,
    Embedding,
    Head,
    Norm,
    Pooler,
    Positions,
    RelativeBias,
    Segments,
    TokenPooler,
)
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families.encoders import EncoderLayers
from tfacct.families.family import ABSENT, attention_modules, mlp_modules
from tfacct.families.fields import LayerCount, NonNegativeInt, PositiveFloat, PositiveInt, StrictBool, StrictStr
from tfacct.families.task_heads import ANSWERS, BODY, CAUSAL_MODEL, SCORED, TOKENS, TOKENS_CLASSIFIED, TaskHead

CLASSES = "ForSequenceClassification"
MASKED = TaskHead("AutoModelForMaskedLM")
ENCODING: Mapping[str, TaskHead] = {
    "ForMaskedLM": MASKED,
    "Model": TaskHead("AutoModel", "none", pooler=True, paths={"pooler": "pooler.dense"}, body=""),
    CLASSES: replace(
        SCORED, pooler=True, bias=True, paths={"pooler": "classifier.dense", "classifier": "classifier.out_proj"}
    ),
    "ForTokenClassification": TOKENS_CLASSIFIED,
    "ForQuestionAnswering": ANSWERS,
}
"""A masked language model, the base model with a pooler, and classifiers of sequences, tokens and answers."""
PRETRAINED = TaskHead("AutoModelForPreTraining", pooler=True, bias=True, also=True)
"""A masked language model that also classifies pairs of sequences."""
LM_HEAD = {"lm_head.transform": "lm_head.dense", "lm_head.norm": "lm_head.layer_norm", "lm_head": "lm_head.decoder"}
"""A masked language model's head in RoBERTa's relatives."""
LM_BIAS = {"lm_head.bias": "lm_head.bias"}
EMBEDDINGS = {
    "embed": ".embeddings.word_embeddings",
    "pos_embed": ".embeddings.position_embeddings",
    "type_embed": ".embeddings.token_type_embeddings",
    "embed_norm": ".embeddings.LayerNorm",
}
DROPOUTS: Mapping[str, tuple[str, float | None]] = {
    "embedding": ("hidden_dropout_prob", 0.1),
    "residual": ("hidden_dropout_prob", 0.1),
    "attention": ("attention_probs_dropout_prob", 0.1),
}


def mlm_head_modules(at: str, dense: str = "dense", norm: str = "LayerNorm") -> dict[str, str]:
    """A masked language model's head: a projection, a norm and the logits."""
    return {"lm_head.transform": f"{at}.{dense}", "lm_head.norm": f"{at}.{norm}", "lm_head": f"{at}.decoder"}


def sequence_classifier(pooler: str, classifier: str = "classifier") -> TaskHead:
    """The head that classifies sequences, with its pooler and classifier under these names."""
    return replace(ENCODING[CLASSES], paths={"pooler": pooler, "classifier": classifier})


POOLED: Mapping[str, TaskHead] = {**ENCODING, CLASSES: sequence_classifier(".pooler.dense")}
"""Classifiers of sequences read the base model's pooler."""
PAIRS = sequence_classifier(".pooler.dense", "cls.seq_relationship").paths
PRETRAINING: Mapping[str, TaskHead] = {
    **POOLED,
    "ForPreTraining": replace(PRETRAINED, paths=PAIRS, scores=2, obeys=False),
    "ForNextSentencePrediction": replace(
        POOLED[CLASSES], auto="AutoModelForNextSentencePrediction", picks=False, paths=PAIRS, scores=2, obeys=False
    ),
}
"""BERT's: two also predict whether one sequence follows another."""


class BertLike(EncoderLayers):
    """An encoder like BERT, without assumptions about the names of its sizes."""

    vocab_size: PositiveInt = 30522
    tie_word_embeddings: StrictBool = True

    base_model_prefix = "bert"
    task_heads = ENCODING
    module_names = EMBEDDINGS
    layer_path = ".encoder.layer.*"
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
    """`pre` has a norm after the last layer too."""
    norm_after_embeddings = True
    head_owns_embedding = False
    """Whether the class declares its head before the base model, so that the tied embedding has the head's name."""
    head_may_be_untied = False

    context = property(attrgetter("max_position_embeddings"))

    @property
    def embedding_width(self) -> int | None:
        """Width of the embeddings, if it is not hidden_size."""
        width: int = getattr(self, "embedding_size", None) or self.hidden_size
        return None if width == self.hidden_size else width

    @property
    def embedding_sizes(self) -> dict[str, Any]:
        """Width of the embeddings, as keyword arguments of a part."""
        return {"hidden": self.embedding_width or self.hidden_size, "narrow": self.embedding_width is not None}

    def embedding(self) -> Embedding:
        """Token embedding, and a projection if it is narrower than the model."""
        width = self.embedding_width
        projected: dict[str, Any] = {} if width is None else {"width": width, "late": True, "bias": True}
        return Embedding(vocab=self.vocab_size, hidden=self.hidden_size, **projected, **self.options("embedding"))

    def positions(self) -> Positions | None:
        return Positions(rows=self.max_position_embeddings, **self.embedding_sizes)

    def relative_bias(self) -> RelativeBias | None:
        """Relative position bias, in families that have one."""
        return None

    def embedding_norm(self) -> Norm | None:
        normed = Norm(kind="layer", eps=self.layer_norm_eps, **self.embedding_sizes)
        return normed if self.norm_after_embeddings else None

    def head(self) -> Head:
        """A projection, an activation, a norm, and logits with a bias."""
        how: dict[str, Any] = {
            "width": self.embedding_width,
            "tied": self.tie_word_embeddings,
            "bias": True,
            "transform": self.head_act or self.hidden_act,
            "eps": self.layer_norm_eps,
        }
        return Head(hidden=self.hidden_size, vocab=self.vocab_size, **how | self.options("head"))

    def hf_tensor_names(self) -> dict[str, str]:
        named_by_head = self.head_owns_embedding and self.task_head.head == "lm"
        return super().hf_tensor_names() | ({"embed.weight": "lm_head.decoder.weight"} if named_by_head else {})

    def check(self) -> None:
        super().check()
        if not (self.tie_word_embeddings or self.head_may_be_untied) and self.task_head.head == "lm":
            raise self.refused("tie_word_embeddings", False)

    def architecture(self) -> Transformer:
        """Embeddings and a norm, bidirectional layers, and a head with a transform."""
        self.check()
        stack = Stack(self.block(), self.num_hidden_layers, shared_weights="all" if self.shared_weights else ())
        segments = getattr(self, "type_vocab_size", 0)
        return Transformer(
            embed=self.embedding(),
            positions=self.positions(),
            segments=Segments(rows=segments, **self.embedding_sizes) if segments else None,
            bias=self.relative_bias(),
            embed_norm=self.embedding_norm(),
            stacks=(stack,),
            final_norm=self.norm() if self.order == "pre" else None,
            head=self.head(),
        )


class PositionsAfterPadding(BertLike):
    """Positions counted from the row after the padding token's."""

    offset = property(lambda self: self.pad_token_id + 1)
    """Rows of the position embedding before the first position."""

    @property
    def context(self) -> int:
        """Rows from the first position on. Raises ConfigError if there are none."""
        rows: int = self.max_position_embeddings - self.offset
        if rows < 1:
            raise ConfigError(
                f"max_position_embeddings = {self.max_position_embeddings:,} leaves no positions after pad_token_id ="
                f" {self.pad_token_id:,}"
            )
        return rows

    def positions(self) -> Positions | None:
        return Positions(rows=self.context + self.offset, offset=self.offset, **self.embedding_sizes)


class BertBase(BertLike):
    """The fields that most of them share."""

    hidden_size: PositiveInt = 768
    num_hidden_layers: LayerCount = 12
    num_attention_heads: PositiveInt = 12
    intermediate_size: PositiveInt = 3072
    max_position_embeddings: PositiveInt = 512
    hidden_act: StrictStr = "gelu"
    layer_norm_eps: PositiveFloat = 1e-12

    dropouts: ClassVar[Mapping[str, tuple[str, float | None]]] = {
        **DROPOUTS,
        "classifier": ("classifier_dropout", None),
    }


class DecoderCapable(BertBase):
    """Classes that can also be decoders, which is not supported."""

    type_vocab_size: PositiveInt = 2
    is_decoder: StrictBool = False
    position_embedding_type: StrictStr = "absolute"
    required_values = {"position_embedding_type": "absolute", "is_decoder": False}


class Bert(DecoderCapable):
    """BERT: bidirectional attention, post-norm layers, and a head that predicts masked tokens."""

    ignored_fields = """directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
        pooler_size_per_head pooler_type"""
    task_heads = PRETRAINING
    module_names = mlm_head_modules("cls.predictions", "transform.dense", "transform.LayerNorm")
    tensor_names = {"lm_head.bias": "cls.predictions.bias"}


class BertGeneration(BertBase):
    """BERT without segments as half of an encoder-decoder: a causal decoder with a KV cache, or an encoder."""

    sizes = dict(vocab=50358, hidden=1024, mlp=4096, layers=24, heads=16)
    is_decoder: StrictBool = False
    dropouts = DROPOUTS
    task_heads = {"Decoder": CAUSAL_MODEL, "Encoder": BODY}
    module_names = {"type_embed": ABSENT, "lm_head": "lm_head.decoder"}
    tensor_names = LM_BIAS
    attention_options = dict(causal=attrgetter("is_decoder"))
    head_options = dict(transform=None)


class ChineseCLIPText(Bert):
    """Chinese CLIP's text encoder: BERT, and a projection of the first token."""

    projection_dim: PositiveInt = 512
    ignored_fields = "initializer_factor"
    task_heads = {
        "Model": replace(ENCODING["Model"], auto="ChineseCLIPTextModel"),
        "ModelWithProjection": TaskHead("", "none", pooler=True, paths={"pooler.project": "text_projection"}),
    }

    def pooler(self, hidden: Any) -> Pooler | TokenPooler:
        if "pooler" in self.task_head.paths:
            return Pooler(hidden=hidden)
        return TokenPooler(hidden=hidden, width=self.projection_dim)


class DPR(DecoderCapable):
    """DPR: BERT as an encoder of questions or of passages; the first token is the text's vector."""

    projection_dim: NonNegativeInt = 0
    ignored_fields = Bert.ignored_fields
    task_heads = {
        f"{side}Encoder": TaskHead(
            f"DPR{side}Encoder",
            "none",
            pooler=True,
            paths={"pooler.project": f"{at}.encode_proj"},
            body=f"{at}.bert_model.",
        )
        for side, at in (("Question", "question_encoder"), ("Context", "ctx_encoder"))
    }
    base_model_prefix = "question_encoder.bert_model"

    def pooler(self, hidden: Any) -> TokenPooler | None:
        return TokenPooler(hidden=hidden, width=self.projection_dim, bias=True) if self.projection_dim else None


class MegatronBert(DecoderCapable):
    """Megatron's BERT: norms before the sublayers, none after the embeddings, one after the last layer."""

    sizes = dict(vocab=29056, hidden=1024, mlp=4096, layers=24, heads=16)
    order, norm_after_embeddings = "pre", False
    task_heads = Bert.task_heads
    module_names = {**Bert.module_names, "embed_norm": ABSENT, "final_norm": ".encoder.ln"}
    layer_module_names = {"attn_norm": "attention.ln", "mlp_norm": "ln"}
    tensor_names = Bert.tensor_names


class MPNet(PositionsAfterPadding, BertBase):
    """MPNet: BERT's encoder with RoBERTa's positions, and a relative position bias."""

    sizes = dict(vocab=30527)
    relative_attention_num_buckets: PositiveInt = 32
    dropouts = {**DROPOUTS, "classifier": ("hidden_dropout_prob", 0.1)}
    offset = 2  # pad_token_id is not read
    head_act = "gelu"
    base_model_prefix = "mpnet"
    module_names = {**LM_HEAD, "rel_bias": ".encoder.relative_attention_bias"}
    tensor_names = LM_BIAS
    layer_module_names = {**attention_modules("attention.attn", "q", "k", "v", "o"), "attn_norm": "attention.LayerNorm"}
    attention_options = dict(distance_bias=DistanceBias())

    @property
    def context(self) -> int:
        if self.max_position_embeddings <= self.offset:
            raise ConfigError(f"max_position_embeddings must be at least 3, not {self.max_position_embeddings:,}")
        return self.max_position_embeddings - self.offset

    def relative_bias(self) -> RelativeBias:
        return RelativeBias(buckets=self.relative_attention_num_buckets, kv_heads=self.num_attention_heads, group=1)


class RemBert(DecoderCapable):
    """RemBERT: BERT's encoder with embeddings narrower than the model, and an untied, wider head."""

    sizes = dict(vocab=250300, hidden=1152, mlp=4608, layers=32, heads=18)
    defaults = dict(tie_word_embeddings=False)
    input_embedding_size: PositiveInt = 256
    output_embedding_size: PositiveInt = 1664
    required_values = {"tie_word_embeddings": False}
    dropouts = {place: (field, 0.0) for place, (field, _) in DROPOUTS.items()}
    dropouts["classifier"] = ("classifier_dropout_prob", 0.1)
    head_may_be_untied = True
    task_heads = POOLED
    base_model_prefix = "rembert"
    module_names = {**mlm_head_modules("cls.predictions"), "embed.project": ".encoder.embedding_hidden_mapping_in"}
    # The projection exists even if the embeddings are as wide as the model.
    embedding_width = property(attrgetter("input_embedding_size"))
    head_options = dict(tied=False, width=None, output_width=attrgetter("output_embedding_size"))


class Splinter(BertBase):
    """Splinter: BERT's encoder without a pooler. The head that selects answers is not included."""

    type_vocab_size: PositiveInt = 2
    dropouts = DROPOUTS
    ignored_fields = "question_token_id"
    task_heads = {"Model": BODY}
    base_model_prefix = "splinter"


class Roberta(PositionsAfterPadding, DecoderCapable):
    """RoBERTa: BERT's encoder, with positions counted from the row after the padding token's."""

    sizes = dict(vocab=50265)
    pad_token_id: NonNegativeInt = 1
    reference_only = "pad_token_id"
    head_act = "gelu"
    base_model_prefix = "roberta"
    module_names = LM_HEAD
    tensor_names = LM_BIAS


class RobertaPreLayerNorm(Roberta):
    """RoBERTa with norms before the sublayers, and one after the last layer."""

    order = "pre"
    base_model_prefix = "roberta_prelayernorm"
    module_names = {"final_norm": ".LayerNorm"}
    layer_module_names = {"attn_norm": "attention.LayerNorm", "mlp_norm": "intermediate.LayerNorm"}


class XLMRoberta(Roberta):
    """XLM-RoBERTa: RoBERTa, for many languages. Only the default vocabulary differs."""

    sizes = dict(vocab=30522)
    head_owns_embedding = True


class Camembert(XLMRoberta):
    """CamemBERT: RoBERTa, for French. Only the default vocabulary differs."""


class XLMRobertaXL(Roberta):
    """XLM-RoBERTa XL and XXL: norms before the sublayers, none after the embeddings, one after the last layer."""

    sizes = dict(vocab=250880, hidden=2560, mlp=10240, layers=36, heads=32, context=514)
    defaults = dict(type_vocab_size=1, layer_norm_eps=1e-5)
    order, norm_after_embeddings = "pre", False
    dropouts = {("attn" if place == "residual" else place): field for place, field in Roberta.dropouts.items()}
    module_names = {"embed_norm": ABSENT, "final_norm": ".encoder.LayerNorm"}
    layer_module_names = {"attn_norm": "attention.self_attn_layer_norm", "mlp_norm": "LayerNorm"}


class Data2VecText(Roberta):
    """data2vec for text: RoBERTa. Only the default vocabulary differs."""

    sizes = dict(vocab=30522)
    base_model_prefix = "data2vec_text"


class AltCLIPText(Roberta):
    """AltCLIP's text encoder: XLM-RoBERTa's encoder, a norm and a projection of every token."""

    sizes = dict(vocab=250002, hidden=1024, mlp=4096, layers=24, heads=16, context=514)
    defaults = dict(type_vocab_size=1, layer_norm_eps=1e-5)
    dropouts = {"attention": ("attention_probs_dropout_prob", 0.0)}
    project_dim: PositiveInt = 768
    projection_dim: PositiveInt = 768
    reference_only = "projection_dim"
    ignored_fields = "initializer_factor pooler_fn learn_encoder"
    checkpoint_conversion_mapping = ((r"\.encoder\.layer\.", ".encoder.layers."),)
    transformation = {"pooler.project": "transformation"}
    task_heads = {
        "Model": TaskHead("AltCLIPTextModel", "none", pooler=True, paths=transformation),
        "ModelWithProjection": TaskHead(
            "", "none", pooler=True, paths={**transformation, "pooler.then": "text_projection"}
        ),
    }
    base_model_prefix = ""
    layer_path = "roberta.encoder.layers.*"
    module_names = {
        **{name: f"roberta{hf_name}" for name, hf_name in EMBEDDINGS.items()},
        **dict.fromkeys(LM_HEAD, ABSENT),
        "final_norm": "pre_LN",
    }
    tensor_names = dict.fromkeys(LM_BIAS, ABSENT)

    def pooler(self, hidden: Any) -> TokenPooler:
        """A projection of every token; in the composite CLIP class, a second one of the first token."""
        then = self.projection_dim if "pooler.then" in self.task_head.paths else None
        return TokenPooler(hidden=hidden, reads="each", width=self.project_dim, bias=True, then=then)

    def architecture(self) -> Transformer:
        return replace(super().architecture(), final_norm=self.norm(), head=None)


class Electra(DecoderCapable):
    """ELECTRA: BERT's encoder, embeddings may be narrower than the model; a discriminator, or the generator."""

    sizes = dict(hidden=256, mlp=1024, heads=4)
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
    module_names = {
        **mlm_head_modules("generator_predictions"),
        "embed.project": ".embeddings_project",
        "lm_head": "generator_lm_head",
    }

    def pooler(self, hidden: Any) -> Pooler:
        """Projection of the first position and GELU; the discriminator's of each position."""
        if self.task_head == self.discriminator:
            return Pooler(hidden=hidden, reads="each", activation=self.hidden_act)
        return Pooler(hidden=hidden, activation="gelu")


class Albert(BertBase):
    """ALBERT: BERT's encoder, with one layer's weights for all layers, and embeddings narrower than the model."""

    sizes = dict(vocab=30000, hidden=4096, mlp=16384, heads=64)
    defaults = dict(hidden_act="gelu_new")
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
    reference_only = "-num_hidden_groups -inner_group_num"
    ignored_fields = "gap_size net_structure_type num_memory_blocks down_scale_factor"
    task_heads = {
        **ENCODING,
        "Model": replace(ENCODING["Model"], paths={"pooler": "pooler"}),
        CLASSES: sequence_classifier(".pooler"),
        "ForPreTraining": replace(PRETRAINED, paths={"pooler": ".pooler", "classifier": "sop_classifier.classifier"}),
    }
    base_model_prefix = "albert"
    layer_path = ".encoder.albert_layer_groups.0.albert_layers.0"
    shared_weights = True
    module_names = {**mlm_head_modules("predictions"), "embed.project": ".encoder.embedding_hidden_mapping_in"}
    tensor_names = {"lm_head.bias": "predictions.bias"}
    layer_module_names = {
        **attention_modules("attention", "query", "key", "value", "dense"),
        "attn_norm": "attention.LayerNorm",
        "mlp.up_proj": "ffn",
        "mlp.down_proj": "ffn_output",
        "mlp_norm": "full_layer_layer_norm",
    }
    # The projection exists even if the embeddings are as wide as the model.
    embedding_width = property(attrgetter("embedding_size"))


class DistilBert(BertLike):
    """DistilBERT: BERT's encoder with half the layers, and without segments and pooler."""

    dim: PositiveInt = 768
    n_layers: LayerCount = 6
    n_heads: PositiveInt = 12
    hidden_dim: PositiveInt = 3072
    max_position_embeddings: PositiveInt = 512
    activation: StrictStr = "gelu"

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
    layer_path = ".transformer.layer.*"
    module_names = {
        "type_embed": ABSENT,
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
    pooler_options = dict(activation="relu")
