"""Encoders with rotary embedding (or ALiBi) and gated MLPs, and encoders of proteins."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, Literal

from pydantic import Field

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import (
    Attention,
    Classes,
    Embedding,
    Experts,
    FeedForward,
    Norm,
    Part,
    Pooler,
    Positions,
    QKNorm,
    Rotary,
)
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.record import record
from tfacct.families.bert import (
    CLASSES,
    DROPOUTS,
    ENCODING,
    LM_BIAS,
    LM_HEAD,
    MASKED,
    POOLED,
    BertBase,
    DecoderCapable,
    PositionsAfterPadding,
    mlm_head_modules,
)
from tfacct.families.decoder import DIVIDED_HEAD_DIM, QK_NORMS, DecoderBase, Layer, Window
from tfacct.families.family import ABSENT, NULL_HEADS, attention_modules, mlp_modules
from tfacct.families.family_config import FamilyConfig
from tfacct.families.fields import (
    JsonDict,
    LayerCount,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    read_rope,
    require_even,
)
from tfacct.families.layer_kinds import SLIDING, LayerTypes, check_top_k, rope_of_kind
from tfacct.families.llama import Llama
from tfacct.families.task_heads import BODY, CAUSAL_MODEL, SCORED, TOKENS, TOKENS_CLASSIFIED, TaskHead
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Unused

POOLED_OR_BASE = {
    **{name: ENCODING[name] for name in ("ForMaskedLM", "ForTokenClassification")},
    CLASSES: POOLED[CLASSES],
    "Model": BODY,
}
"""Task heads of classes whose base model has a pooler for sequence classifiers only."""


class RotaryBert(BertBase):
    """BERT's post-norm layers with rotary embedding and a gated MLP."""

    type_vocab_size: NonNegativeInt = 1
    head_dim: PositiveInt | None = None  # type: ignore[assignment]
    rope_theta: PositiveFloat | None = None
    rope_scaling: JsonDict | None = None
    rope_parameters: JsonDict | None = None

    default_rope_theta = 10_000.0
    has_attention_bias, has_mlp_down_bias = False, False
    attention_options = dict.fromkeys(("qkv_bias", "out_bias"), attrgetter("has_attention_bias"))
    mlp_options = dict(gated=True, bias=False, down_bias=attrgetter("has_mlp_down_bias"))
    checkpoint_conversion_mapping: ClassVar[tuple[tuple[str, str], ...]] = (
        (r"\.encoder\.layers?\.", ".layers."),
        (r"\.attention\.(o_proj|qkv_proj)\.", r".self_attn.\1."),
        (r"\.(attn|mixer)\.Wqkv\.", ".self_attn.qkv_proj."),
        (r"\.(attn|mixer)\.out_proj\.", ".self_attn.o_proj."),
        (r"\.(attn_ln|norm1)\.", ".post_attention_layernorm."),
        (r"\.(mlp_ln|norm2)\.", ".post_mlp_layernorm."),
        (r"\.mlp\.up_gate_proj\.", ".mlp.gate_up_proj."),
        (r"\.emb_ln\.", ".embeddings.LayerNorm."),
    )
    layer_path = ".layers.*"
    module_names = {"pos_embed": ABSENT}
    layer_module_names = {
        **attention_modules("self_attn"),
        **mlp_modules("mlp"),
        "attn_norm": "post_attention_layernorm",
        "mlp_norm": "post_mlp_layernorm",
    }

    def rope(self) -> Rotary:
        return read_rope(self.rope_theta or self.default_rope_theta, self.rope_scaling, self.rope_parameters)

    def attention(self, **overrides: Any) -> Attention:
        size = require_even(self.head_dim or self.divide("hidden_size", "num_attention_heads"))
        return super().attention(head_dim=size)

    def positions(self) -> None:
        return


class Gte(RotaryBert):
    """GTE: BERT's post-norm layers with rotary embedding and gated MLPs whose last projection has a bias."""

    sizes = dict(vocab=250048, context=8192)
    layer_norm_type: StrictStr = "layer_norm"
    position_embedding_type: StrictStr = "rope"
    dropouts = {
        **BertBase.dropouts,
        "mlp_product": ("hidden_dropout_prob", 0.1),
        "attention": ("attention_probs_dropout_prob", 0.0),
    }
    class_prefixes = ("Gte", "New")
    required_values = {"layer_norm_type": "layer_norm", "position_embedding_type": "rope"}
    ignored_fields = """pack_qkv unpad_inputs use_memory_efficient_attention logn_attention_scale
        logn_attention_clip1"""
    task_heads = POOLED_OR_BASE
    head_act = "gelu"
    base_model_prefix = "gte"
    default_rope_theta = 160_000.0
    has_attention_bias, has_mlp_down_bias = True, True
    module_names = LM_HEAD


class JinaEmbeddingsV3(RotaryBert):
    """Jina Embeddings v3: XLM-RoBERTa with rotary embedding instead of learned positions."""

    sizes = dict(vocab=250002, hidden=1024, mlp=4096, heads=16, context=8194)
    defaults = dict(layer_norm_eps=1e-5)
    num_hidden_layers: LayerCount = 24
    dropouts = {}
    head_owns_embedding, head_act = True, "gelu"
    base_model_prefix = "roberta"
    default_rope_theta = 20_000.0
    has_attention_bias = True
    module_names, tensor_names = LM_HEAD, LM_BIAS
    layer_module_names = {**mlp_modules("mlp", "fc1", "fc2", None), "mlp.gate_proj": ABSENT}
    mlp_options = dict(gated=False, bias=True)


NOMIC_VALUES = {
    "prenorm": False,
    "parallel_block": False,
    "use_rms_norm": False,
    "causal": False,
    "rotary_emb_fraction": 1.0,
    "add_pooling_layer": False,
    "ffn_div": 1,
    "num_shared_experts": 0,
    "expert_choice_router": False,
}
"""Fields of the files published by nomic-ai, and the supported value."""
GATES = {"glu": "sigmoid", "swiglu": "silu", "geglu": "gelu"}
"""activation_function values that make MLPs gated → the activation of the gate."""


class NomicBert(RotaryBert):
    """Nomic BERT: BERT's post-norm layers without biases, with rotary embedding and gated MLPs. Files with custom code
    also have biases, plain MLPs, and experts in every few layers."""

    sizes = dict(vocab=30528, context=2048)
    defaults = dict(hidden_act="silu")
    type_vocab_size: PositiveInt = 2
    activation_function: StrictStr | None = None
    qkv_proj_bias: StrictBool = False
    mlp_fc1_bias: StrictBool = False
    mlp_fc2_bias: StrictBool = False
    num_experts: NonNegativeInt = 0
    moe_top_k: PositiveInt = 1
    moe_every_n_layers: NonNegativeInt = 0
    num_shared_experts: NonNegativeInt = 0
    ffn_div: PositiveInt = 1
    expert_choice_router: StrictBool = False
    add_pooling_layer: StrictBool = False
    prenorm: StrictBool = False
    parallel_block: StrictBool = False
    use_rms_norm: StrictBool = False
    causal: StrictBool = False
    rotary_emb_fraction: PositiveFloat = 1.0

    dropouts = {
        **{place: (field, 0.0) for place, (field, _) in DROPOUTS.items()},
        "classifier": ("classifier_dropout", None),
    }
    checkpoint_conversion_mapping = (
        *RotaryBert.checkpoint_conversion_mapping,
        (r"\.mlp\.fc11\.", ".mlp.up_proj."),
        (r"\.mlp\.fc12\.", ".mlp.gate_proj."),
        (r"\.mlp\.fc2\.", ".mlp.down_proj."),
    )
    attribute_map = {
        "n_embd": "hidden_size",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
        "n_inner": "intermediate_size",
        "n_positions": "max_position_embeddings",
    }
    reference_only = "-activation_function"
    required_values = NOMIC_VALUES
    ignored_fields = """rotary_emb_base rotary_emb_interleaved rotary_emb_scale_base rotary_scaling_factor
        max_trained_positions dense_seq_output fused_bias_fc fused_dropout_add_ln last_layer_subset
        pad_vocab_size_multiple parallel_block_tied_norm scale_attn_by_inverse_layer_idx scale_attn_weights
        reorder_and_upcast_attn summary_activation summary_first_dropout summary_proj_to_labels summary_type
        summary_use_proj use_flash_attn use_xentropy moe_impl moe_normalize_expert_weights moe_resid_pdrop"""
    task_heads = POOLED_OR_BASE
    base_model_prefix = "nomic_bert"
    default_rope_theta = 1000.0
    has_attention_bias = property(attrgetter("qkv_proj_bias"))
    has_mlp_down_bias = property(attrgetter("mlp_fc2_bias"))
    module_names = mlm_head_modules("cls.predictions", "transform.dense", "transform.layer_norm")
    tensor_names = {"lm_head.bias": "cls.predictions.bias"}
    activation = property(lambda self: self.activation_function or self.hidden_act)

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields. Null means absent for fields with one supported value; a gating activation_function
        becomes hidden_act."""
        raw = {name: value for name, value in raw.items() if value is not None or name not in NOMIC_VALUES}
        activation = raw.get("activation_function")
        if isinstance(activation, str) and activation in GATES:
            del raw["activation_function"]
            raw["hidden_act"] = GATES[activation]
        return super().read(raw)

    def mlp(self, **overrides: Any) -> FeedForward:
        """Gated or plain, with biases or without. Raises ConfigError."""
        if self.mlp_fc1_bias and not self.mlp_fc2_bias:
            raise self.refused("mlp_fc2_bias", self.mlp_fc2_bias)
        gated = self.activation_function is None
        return super().mlp(gated=gated, activation=self.activation, bias=self.mlp_fc1_bias)

    def architecture(self) -> Transformer:
        """Equal layers, or layers with experts in every few. Raises ConfigError."""
        model, every = super().architecture(), self.moe_every_n_layers
        if not every or not self.num_experts:
            if self.num_experts:
                raise self.refused("num_experts", self.num_experts)
            return model
        check_top_k(self.moe_top_k, self.num_experts, ("moe_top_k", "num_experts"))
        sizes: dict[str, Any] = {"experts": self.num_experts, "active": self.moe_top_k}
        sizes["width"] = self.intermediate_size
        experts = Experts(hidden=self.hidden_size, **sizes, gated=False, sum_bias=True, activation=self.activation)
        dense, sparse = self.block(), Block.of(self.attention(), experts, norm=self.norm(), order=self.order)
        layers = [sparse if number % every == 1 else dense for number in range(self.num_hidden_layers)]
        return replace(model, stacks=stacks(layers))

    def hf_unsupported(self) -> str | None:
        if self.num_experts or self.qkv_proj_bias or self.mlp_fc1_bias or self.mlp_fc2_bias or self.activation_function:
            return "it has no biases, plain MLPs or experts"
        return None


ALIBI, LEARNED = "alibi", "absolute"
JINA_GATES = {"geglu": "gelu", "reglu": "relu"}
"""feed_forward_type → the activation of the gate."""


class JinaBert(DecoderCapable):
    """JinaBERT: BERT's post-norm layers with symmetric ALiBi and gated MLPs. Files have model_type `bert` and a class
    of JinaBERT."""

    feed_forward_type: StrictStr = "original"
    query_key_norm: StrictBool = False
    has_hf_class = False
    task_heads = POOLED
    required_values = {"position_embedding_type": ABSENT}
    reference_only = "-position_embedding_type -feed_forward_type"
    ignored_fields = "emb_pooler"

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields. The name of the custom code determines whether queries and keys have norms."""
        code = raw.get("auto_map")
        if isinstance(code, Mapping) and any("qk-post-norm" in str(value) for value in code.values()):
            raw = {"query_key_norm": True, **raw}
        return super().read(raw)

    def attention(self, **overrides: Any) -> Attention:
        norm = QKNorm(self.layer_norm_eps, together=True, kind="layer") if self.query_key_norm else None
        return super().attention(alibi=self.position_embedding_type == ALIBI, qk_norm=norm)

    def mlp(self, **overrides: Any) -> FeedForward:
        return super().mlp(gated=True, bias=False, down_bias=True, activation=JINA_GATES[self.feed_forward_type])

    def positions(self) -> Positions | None:
        return None if self.position_embedding_type == ALIBI else super().positions()

    def check(self) -> None:
        super().check()
        for name, known in (("position_embedding_type", (ALIBI, LEARNED)), ("feed_forward_type", tuple(JINA_GATES))):
            if getattr(self, name) not in known:
                raise self.refused(name, getattr(self, name))


POOLED_CLASSIFIER = {"pooler": "head.dense", "pooler.norm": "head.norm", "classifier": "classifier"}
FIRST = "first"


def modernbert_classifier(auto: str, scores: int | None = None) -> TaskHead:
    return TaskHead(auto, "classes", pooler=True, bias=True, paths=POOLED_CLASSIFIER, scores=scores)


class ModernBert(DecoderBase):
    """ModernBERT: an encoder of pre-norm layers with rotary embedding, gated MLPs and bidirectional windows; the first
    layer has no norm before attention."""

    vocab_size: PositiveInt = 50368
    hidden_size: PositiveInt = 768
    intermediate_size: PositiveInt = 1152
    num_hidden_layers: LayerCount = 22
    num_attention_heads: PositiveInt = 12
    max_position_embeddings: PositiveInt = 8192
    global_attn_every_n_layers: PositiveInt = 3
    layer_types: LayerTypes | None = None
    local_attention: Window = 128
    norm_bias: StrictBool = False
    attention_bias: StrictBool = False
    mlp_bias: StrictBool = False
    decoder_bias: StrictBool = True
    classifier_bias: StrictBool = False
    classifier_pooling: Literal["cls", "mean"] = "cls"
    tie_word_embeddings: StrictBool = True
    norm_eps: PositiveFloat = 1e-5
    hidden_activation: StrictStr = "gelu"
    classifier_activation: StrictStr = "gelu"
    rope_parameters: JsonDict | None = None
    global_rope_theta: PositiveFloat | None = None
    local_rope_theta: PositiveFloat | None = None

    dropouts = dict(
        embedding=("embedding_dropout", 0.0),
        attn=("attention_dropout", 0.0),
        attention=("attention_dropout", 0.0),
        mlp_product=("mlp_dropout", 0.0),
    )
    drops_in_attention = True
    reference_only = "classifier_pooling"
    ignored_fields = """initializer_cutoff_factor deterministic_flash_attn sparse_prediction sparse_pred_ignore_index
        reference_compile repad_logits_with_grad cls_token_id position_embedding_type"""
    task_heads = {
        "ForMaskedLM": MASKED,
        "Model": BODY,
        CLASSES: modernbert_classifier("AutoModelForSequenceClassification"),
        "ForTokenClassification": modernbert_classifier("AutoModelForTokenClassification"),
        "ForQuestionAnswering": modernbert_classifier("AutoModelForQuestionAnswering", 2),
    }
    constant_axes = frozenset("G")
    causal = False
    module_names = {
        "embed": ".embeddings.tok_embeddings",
        "embed_norm": ".embeddings.norm",
        "final_norm": ".final_norm",
        **mlm_head_modules("head", norm="norm"),
        "lm_head": "decoder",
    }
    layer_module_names = {
        "attn_norm": "attn_norm",
        **attention_modules("attn", "Wqkv", "Wqkv", "Wqkv", "Wo"),
        "mlp_norm": "mlp_norm",
        **mlp_modules("mlp", "Wi", "Wo", "Wi"),
    }
    activation = property(attrgetter("hidden_activation"))
    num_key_value_heads = property(attrgetter("num_attention_heads"))
    head_dim = DIVIDED_HEAD_DIM
    attention_options = dict(causal=attrgetter("causal"))
    head_options = dict(
        bias=attrgetter("decoder_bias"),
        transform=attrgetter("classifier_activation"),
        transform_bias=attrgetter("classifier_bias"),
        norm_bias=attrgetter("norm_bias"),
        eps=attrgetter("norm_eps"),
    )
    norm_kind, eps_field, embedding_norm = "layer", "norm_eps", True
    norm_learned = property(lambda self: "both" if self.norm_bias else "scale")
    window = property(lambda self: 2 * (self.local_attention // 2) + 1)
    """Keys that a query in a window sees, on both sides and including its own."""

    def pooler(self, hidden: Any) -> Pooler:
        """A projection, an activation and a norm before a classifier."""
        reads: Literal["first", "mean", "each"] = "first" if self.classifier_pooling == "cls" else "mean"
        return Pooler(
            hidden=hidden,
            reads=reads if self.task_head == self.task_heads[CLASSES] else "each",
            activation=self.classifier_activation,
            bias=self.classifier_bias,
            norm_eps=self.norm_eps,
            norm_shift=self.norm_bias,
        )

    def layer_rope(self, layer: Layer) -> Rotary:
        """Layers with a window have a different base."""
        theta = self.global_rope_theta or 160_000.0
        if layer.window is not None:
            theta = self.local_rope_theta or 10_000.0
        return read_rope(theta, None, rope_of_kind(self.rope_parameters, layer.window))

    def layers(self) -> list[Layer]:
        every = self.global_attn_every_n_layers
        first, *others = (Layer(seen) for seen in self.windows(lambda number: bool(number % every), self.window))
        return [first._replace(kind=FIRST), *others]

    def block(self, layer: Layer) -> Block:
        block = super().block(layer)
        attention, mlp = block.sublayers
        return block if layer.kind != FIRST else Block((replace(attention, norm=None), mlp))


class ModernBertDecoder(ModernBert):
    """ModernBERT's decoder (Ettin): causal attention, with windows of half the size."""

    sliding_window: PositiveInt | None = None
    reference_only = "sliding_window"
    ignored_fields = "causal_mask"
    task_heads = {
        "ForCausalLM": CAUSAL_MODEL,
        "Model": BODY,
        CLASSES: replace(SCORED, pooler=True, paths=POOLED_CLASSIFIER),
    }
    causal = True
    module_names = {**mlm_head_modules("lm_head", norm="norm"), "lm_head": "decoder"}
    layer_module_names = attention_modules("attn", o="Wo")

    def pooler(self, hidden: Any) -> Pooler:
        return replace(super().pooler(hidden), reads="each")

    @property
    def window(self) -> int:
        """Keys that a query in a window sees. Raises ConfigError."""
        window = self.local_attention // 2
        self.require_if_given({"sliding_window": window})  # the class also saves it
        if window < 2 and (self.layer_types is None or SLIDING in self.layer_types):
            raise self.refused("local_attention", self.local_attention)
        return window

    def transformer(self) -> Transformer:
        """The classifier has a bias if classifier_bias is set."""
        model = super().transformer()
        if model.classes is None:
            return model
        return replace(model, classes=replace(model.classes, bias=self.classifier_bias))


class EuroBert(Llama):
    """EuroBERT: Llama's layers as an encoder, with bidirectional attention."""

    sizes = dict(vocab=128256, hidden=768, mlp=3072, heads=12, context=8192)
    defaults = dict(rms_norm_eps=1e-5)
    num_hidden_layers: LayerCount = 12
    classifier_pooling: Literal["bos", "mean", "late"] = "late"
    reference_only = "classifier_pooling"
    ignored_fields = "mask_token_id clf_pooling mask_token eos_token pad_token bos_token"
    task_heads = {
        "ForMaskedLM": MASKED,
        "Model": BODY,
        CLASSES: TaskHead(
            "AutoModelForSequenceClassification",
            "classes",
            pooler=True,
            bias=True,
            paths={"pooler": "dense", "classifier": "classifier"},
        ),
        "ForTokenClassification": TOKENS_CLASSIFIED,
    }
    attention_options = dict(causal=False)
    head_options = dict(bias=attrgetter("mlp_bias"))

    def pooler(self, hidden: Any) -> Pooler:
        """A projection and GELU before the classifier of sequences."""
        reads: dict[str, Literal["first", "mean", "each"]] = {"bos": "first", "mean": "mean", "late": "each"}
        return Pooler(hidden=hidden, reads=reads[self.classifier_pooling], activation="gelu")


@record(kw_only=True)
class Contacts(Part):
    """Weights that predict contacts of two tokens from the attention scores of all heads of all layers. They are
    stored, but no forward pass runs them (transformers' EsmContactPredictionHead)."""

    maps: Size

    name: ClassVar[str] = "contacts"
    label: ClassVar[str] = "contact prediction"
    listed_after: ClassVar[tuple[str, int]] = (Classes.name, 0)
    axis_names: ClassVar[dict[str, str]] = {"maps": "Am"}
    legend: ClassVar[dict[str, str]] = {"Am": "attention maps of all layers", "Yc": "1: contact score of a token pair"}
    made: ClassVar[dict[str, str]] = {"Yc": "1"}

    def lines(self, at: str) -> Iterator[Line]:
        """Only stored tensors."""
        yield Unused(Matmul(f"{at}.regression", "B T Am, Am Yc -> B T Yc", bias=True))


class Esm(PositionsAfterPadding, BertBase):
    """ESM-1b and ESM-2, encoders of proteins: RoBERTa with norms before the sublayers, or rotary embedding."""

    sizes = dict(context=1026)
    vocab_size: PositiveInt = Field()
    pad_token_id: NonNegativeInt
    position_embedding_type: StrictStr = "absolute"
    rope_theta: PositiveFloat = 10_000.0
    emb_layer_norm_before: StrictBool | None = None
    token_dropout: StrictBool = False
    is_folding_model: StrictBool = False
    esmfold_config: JsonDict | None = None
    is_decoder: StrictBool = False
    add_bias_fnn: StrictBool | None = None

    dropouts = {place: DROPOUTS[place] for place in ("residual", "attention")}
    reference_only = "pad_token_id -position_embedding_type -esmfold_config -add_bias_fnn"
    required_values = {
        **{"is_folding_model": False, "esmfold_config": None, "is_decoder": False},
        "add_bias_fnn": None,  # of a gated MLP, in files with custom code
    }
    ignored_fields = "mask_token_id vocab_list"
    task_heads = {name: ENCODING[name] for name in ("ForMaskedLM", "Model", CLASSES, "ForTokenClassification")}
    order, head_act, head_may_be_untied = "pre", "gelu", True
    mlp_options = dict(activation="gelu")  # for any hidden_act
    base_model_prefix = "esm"
    module_names = {
        **LM_HEAD,
        "type_embed": ABSENT,
        "embed_norm": ".embeddings.layer_norm",
        "final_norm": ".encoder.emb_layer_norm_after",
        "contacts.regression": ".contact_head.regression",
    }
    layer_module_names = {"attn_norm": "attention.LayerNorm", "mlp_norm": "LayerNorm"}
    tensor_names = LM_BIAS

    @property
    def has_rope(self) -> bool:
        """True if positions are rotary. Raises ConfigError if they are neither rotary nor learned."""
        kind = self.position_embedding_type
        if kind not in ("rotary", "absolute"):
            raise ConfigError(
                f"position_embedding_type = {format_value(kind)} is not supported: use rotary or absolute"
            )
        return kind == "rotary"

    def rope(self) -> Rotary | None:
        if not self.has_rope:
            return None
        require_even(self.head_dim, "the size of a head")
        return Rotary(self.rope_theta)

    def embedding(self) -> Embedding:
        """The embedding; with token_dropout, it is scaled as without masked tokens."""
        scaled: dict[str, Any] = {"scaled": True, "factor": 0.88} if self.token_dropout else {}
        return replace(super().embedding(), **scaled)

    def embedding_norm(self) -> Norm | None:
        return super().embedding_norm() if self.emb_layer_norm_before else None

    def positions(self) -> Positions | None:
        return None if self.has_rope else super().positions()

    def architecture(self) -> Transformer:
        """The architecture, with a head that predicts contacts."""
        return replace(
            super().architecture(), extra_parts=(Contacts(maps=self.num_hidden_layers * self.num_attention_heads),)
        )


class Esmc(Llama):
    """ESM C, an encoder of proteins: Llama's layers with LayerNorm, norms of queries and keys, and bidirectional
    attention; the depth scales sublayer outputs."""

    sizes = dict(vocab=64, hidden=2560, mlp=6912, layers=80, heads=40)
    null_means = NULL_HEADS
    ignored_fields = "mask_token_id"
    constant_axes = frozenset("G")
    heads_fill_hidden_size, grouped_queries = True, False
    norm_kind, eps_field, eps = "layer", "eps", 1e-5  # rms_norm_eps is not read
    qk_norm = QKNorm(0, together=True, kind="layer", shift=False)
    task_heads = {"ForMaskedLM": MASKED, "Model": BODY, CLASSES: ENCODING[CLASSES], "ForTokenClassification": TOKENS}
    base_model_prefix = "esmc"
    module_names = LM_HEAD
    layer_module_names = QK_NORMS
    attention_options = dict(causal=False)
    head_options = dict(bias=True, transform="gelu", eps=eps)
    residual_factor = property(lambda self: (36 / self.num_hidden_layers) ** 0.5)

    def check(self) -> None:
        super().check()
        if self.tie_word_embeddings and self.task_head.head == "lm":
            raise self.refused("tie_word_embeddings", True)

    def embeddings_and_head(self) -> dict[str, Any]:
        return {**super().embeddings_and_head(), "final_norm": replace(self.norm(), learned="scale")}
