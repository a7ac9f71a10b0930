"""Llama and its nearest relatives."""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar

from pydantic import Field, StrictInt

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import (
    CrossAttention,
    Embedding,
    Experts,
    FeedForward,
    GatedResidual,
    QKNorm,
    ReadNorm,
    Rotary,
)
from tfacct.architecture.parts.shared import ALONE
from tfacct.architecture.transformer import Encoder
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.decoder import (
    DIVIDED_HEAD_DIM,
    EXPERT_TENSORS,
    QK_NORMS,
    AnyAttention,
    Decoder,
    DecoderBase,
    Layer,
    Window,
    expert_modules,
)
from tfacct.families.family import ABSENT, NULL_HEADS, SAME_AS_QUERY_HEADS, mlp_modules, submodules
from tfacct.families.fields import (
    LayerCount,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
)
from tfacct.families.layer_kinds import Flags, LayerTypes, check_length, rope_layers
from tfacct.families.task_heads import CAUSAL_MODEL, DECODER, LABELLING, TOKENS, TaskHead
from tfacct.ledger.lines import Line, Pointwise

SIZES = dict(vocab_size=32000, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32)
"""Llama 1 with 7 billion parameters."""


class Llama(Decoder):
    """Llama 1 to 3.2: RMSNorm, rotary embedding, grouped-query attention, gated MLP, no biases."""

    sizes = dict(mlp=11008, kv_heads=SAME_AS_QUERY_HEADS, context=2048)
    attention_bias: StrictBool = False
    mlp_bias: StrictBool = False
    class_prefixes: ClassVar[tuple[str, ...]] = ("Llama", "LLaMA")  # some files write LLaMA
    nested_defaults = SIZES
    task_heads = LABELLING


class Arcee(Llama):
    """Arcee's AFM: Llama's attention, and an MLP of two matrices with squared ReLU."""

    sizes = dict(vocab=32000, hidden=2560, mlp=18432, layers=32, heads=32, context=4096)
    defaults = dict(hidden_act="relu2", rms_norm_eps=1e-5)
    mlp_gated = False


class Jais2(Llama):
    """Jais 2: Llama's attention with biases, LayerNorm, and an MLP of two matrices with squared ReLU."""

    sizes = dict(vocab=150272, hidden=3328, mlp=26624, layers=32, heads=26, context=8192)
    defaults = dict(attention_bias=True, mlp_bias=True, hidden_act="relu2")
    layer_norm_eps: PositiveFloat = 1e-5
    task_heads = DECODER
    norm_kind, eps_field, mlp_gated = "layer", "layer_norm_eps", False


class Helium(Llama):
    """Helium: Llama's layer; neighboring elements of a head are rotated as pairs."""

    sizes = dict(vocab=48000, hidden=2560, mlp=7040, layers=24, heads=20, kv_heads=20, head_dim=128, context=4096)
    defaults = dict(rms_norm_eps=1e-8, rope_theta=100_000.0)
    heads_fill_hidden_size, rope_pairs, attention_out_bias = True, "neighbours", False


class IQuestCoder(Llama):
    """IQuest-Coder V1: Llama's layer, run by Llama's class."""

    sizes = dict(vocab=76800, hidden=5120, mlp=27648, layers=80, heads=40, kv_heads=8, head_dim=128, context=131072)
    defaults = dict(rms_norm_eps=1e-5)
    class_prefixes = ("IQuestCoder", "Llama")
    task_heads = DECODER
    null_means = NULL_HEADS


class InternLM3(Llama):
    """InternLM3: Llama's layer, run by Llama's class."""

    sizes = dict(vocab=128512, hidden=4096, mlp=10240, layers=48, heads=32, kv_heads=2, head_dim=128, context=32768)
    defaults = dict(rms_norm_eps=1e-5)
    class_prefixes = ("InternLM3", "Llama")
    task_heads = DECODER
    null_means = NULL_HEADS
    attribute_map = {"qkv_bias": "attention_bias", "bias": "mlp_bias"}

    def check(self) -> None:
        if self.attention_bias != self.mlp_bias:
            raise ConfigError("qkv_bias and bias differ: the class needs both or neither")


class OwnCodeLlama(Llama):
    """Llama's layer in custom code; Llama's class also runs it."""

    hf_model_type = "llama"
    task_heads = DECODER

    def hf_config_fields(self) -> Mapping[str, Any]:
        """Fields with their defaults, which differ from Llama's."""
        return self.model_dump(exclude_none=True)


class InternLM2(OwnCodeLlama):
    """InternLM2 and 2.5: Llama's layer; q, k and v are one matrix in its files."""

    sizes = dict(vocab=103168, hidden=4096, layers=32, heads=32)
    defaults = dict(attention_bias=True)
    class_prefixes = ("InternLM2", "Llama")
    task_heads = {
        **DECODER,
        "ForRewardModel": TaskHead("", "classes", paths={"classifier": "v_head"}, picks=True, scores=1, obeys=False),
    }
    ignored_fields = "reward_token_id"
    attribute_map = {"bias": "attention_bias"}


class Baichuan(Decoder):
    """Baichuan 1 and 2: Llama's layer with q, k and v in one matrix; the 13B models have ALiBi instead of a rotary
    embedding."""

    sizes = dict(kv_heads=SAME_AS_QUERY_HEADS)
    max_position_embeddings: PositiveInt | None = None  # type: ignore[assignment]
    model_max_length: PositiveInt | None = None
    class_prefixes = ("Baichuan", "BaiChuan", "Llama")
    hf_model_type = "llama"
    checkpoint_conversion_mapping = ((r"\.W_pack\.", ".qkv_proj."),)
    constant_axes = frozenset("G")
    ignored_fields = "z_loss_weight"
    heads_fill_hidden_size, grouped_queries = True, False
    context = property(lambda self: self.max_position_embeddings or self.model_max_length or 4096)

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        how = {"alibi": True, "rotary": None} if self.max_position_embeddings is None else {}
        return super().attention(layer, **how)

    def hf_config_fields(self) -> Mapping[str, Any]:
        return {"max_position_embeddings": self.context}


class DeciLM(Decoder):
    """DeciLM: Llama's layer, with a number of key/value heads per layer."""

    num_key_value_heads: PositiveInt | None = None  # type: ignore[assignment]
    num_key_value_heads_per_layer: list[PositiveInt]
    attention_bias: StrictBool = False
    has_hf_class = False
    task_heads = {"ForCausalLM": CAUSAL_MODEL}
    reference_only = "num_key_value_heads"
    head_names = "num_attention_heads by key heads of a layer"
    heads_fill_hidden_size = True

    def check(self) -> None:
        check_length("num_key_value_heads_per_layer", self.num_key_value_heads_per_layer, self.num_hidden_layers)
        # Its config class is Llama's, which writes the number of heads; its code reads only the list.
        if self.num_key_value_heads is not None:
            self.require({"num_key_value_heads": self.num_attention_heads})
        super().check()

    def layers(self) -> list[Layer]:
        return [Layer(kv_heads=kv_heads) for kv_heads in self.num_key_value_heads_per_layer]


class SeedOss(Decoder):
    """Seed-OSS: Llama's layer with biases on q, k and v."""

    sizes = dict(vocab=155136, hidden=4096, mlp=27648, layers=64, heads=80, kv_heads=8, head_dim=128, context=524288)
    attention_bias: StrictBool = True
    attention_out_bias: StrictBool = False
    mlp_bias: StrictBool = False
    dropouts = {"residual": ("residual_dropout", 0.1), "attention": ("attention_dropout", 0.1)}
    drops_in_attention = True
    null_means = NULL_HEADS
    task_heads = LABELLING


class Cwm(Decoder):
    """CWM: Llama's layer; three layers of four have a window."""

    sizes = dict(vocab=128256, hidden=6144, mlp=21504, layers=64, heads=48, kv_heads=8, head_dim=128, context=131072)
    defaults = dict(
        rms_norm_eps=1e-5,
        rope_parameters={
            "rope_theta": 1_000_000.0,
            "factor": 16.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    )
    mlp_bias: StrictBool = False
    sliding_window: Window | None = 8192
    layer_types: LayerTypes | None = None

    def layers(self) -> list[Layer]:
        return [Layer(window) for window in self.windows(lambda number: number % 4 != 0, self.sliding_window)]


class BitNet(Decoder):
    """BitNet b1.58: Llama's layer, with a norm before the last matrix of attention and of the MLP."""

    sizes = dict(vocab=128256, hidden=2560, mlp=6912, layers=30, heads=20, kv_heads=5, context=2048)
    defaults = dict(hidden_act="relu2", rms_norm_eps=1e-5, rope_theta=500_000.0)
    attention_bias: StrictBool = False
    null_means = {"num_key_value_heads": "num_attention_heads"}
    layer_module_names = {"attn.read_norm": "self_attn.attn_sub_norm", "mlp.inner_norm": "mlp.ffn_sub_norm"}
    heads_fill_hidden_size = True
    attention_options = dict(read_norm=attrgetter("read_norm"))
    read_norm = property(lambda self: ReadNorm(self.rms_norm_eps, together=True))
    mlp_options = dict(inner_norm=attrgetter("rms_norm_eps"))


@record(kw_only=True)
class XieluFeedForward(FeedForward):
    """MLP with xIELU, an activation with two learned parameters (ApertusMLP)."""

    mesh_unsupported: ClassVar[str] = "an activation with learned parameters"
    legend: ClassVar[dict[str, str]] = {**FeedForward.legend, **ALONE}
    made: ClassVar[dict[str, str]] = {"U": "1"}

    def lines(self, at: str) -> Iterator[Line]:
        """Projections and the activation."""
        act = Pointwise(f"{at}.act", "B T F U", weight="U", bias="U", kind="activation", function=self.activation)
        for line in FeedForward.lines(self, at):
            yield act if line.path == act.path else line


class Apertus(Decoder):
    """Apertus: Llama's layer with norms of queries and keys; an MLP of two matrices with xIELU, an activation with two
    learned parameters."""

    sizes = dict(vocab=131072, hidden=4096, mlp=14336, layers=32, heads=32, kv_heads=SAME_AS_QUERY_HEADS, context=65536)
    defaults = dict(
        hidden_act="xielu",
        rms_norm_eps=1e-5,
        rope_theta=12_000_000.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )
    attention_bias: StrictBool = False
    task_heads = {**DECODER, "ForTokenClassification": TOKENS}
    reference_only = "-hidden_act"
    ignored_fields = "qk_norm post_norm mlp_bias hidden_dropout"
    layer_module_names = {
        **QK_NORMS,
        "attn_norm": "attention_layernorm",
        "mlp_norm": "feedforward_layernorm",
        "mlp.act": "mlp.act_fn",
    }
    layer_tensor_names = {"mlp.act.weight": "mlp.act_fn.alpha_p", "mlp.act.bias": "mlp.act_fn.alpha_n"}
    qk_norm, mlp_gated = QKNorm(0), False

    def mlp(self, layer: Layer) -> FeedForward:
        plain = self.dense_mlp()
        return XieluFeedForward.of(plain) if self.hidden_act == "xielu" else plain


class NanoChat(Decoder):
    """nanochat: Llama's layer with an MLP of two matrices; no norm has a weight, and logits are soft-capped."""

    sizes = dict(vocab=50304, hidden=768, mlp=8192, layers=12, heads=6, kv_heads=SAME_AS_QUERY_HEADS, context=2048)
    defaults = dict(hidden_act="relu2")
    attention_bias: StrictBool = False
    final_logit_softcapping: PositiveFloat | None = 15.0
    reference_only = "-final_logit_softcapping"
    module_names = {"embed_norm": "model.norm"}
    layer_module_names = {**QK_NORMS, "mlp.gate_proj": ABSENT, "mlp.up_proj": "mlp.fc1", "mlp.down_proj": "mlp.fc2"}
    qk_norm, mlp_gated = QKNorm(0, late=True, learned=False), False
    head_options = dict(softcap=attrgetter("final_logit_softcapping"))
    norm_learned, embedding_norm = "none", True

    def rope(self) -> Rotary:
        """Rotary embedding in the other direction."""
        return super().rope()._replace(kind="backwards")


class Chameleon(Llama):
    """Chameleon's language model: Llama's layer with a LayerNorm of each query and key head; norms after the sublayers
    instead of before if swin_norm is set."""

    sizes = dict(vocab=65536, hidden=4096, layers=32, heads=32, kv_heads=32, context=4096)
    defaults = dict(rms_norm_eps=1e-5)
    swin_norm: StrictBool = False
    hf_model_type = "chameleon"
    task_heads = {"ForConditionalGeneration": TaskHead("ChameleonForConditionalGeneration")}
    ignored_fields = "image_token_id model_parallel_size vocabulary_map"
    layer_module_names = {**QK_NORMS, "attn_post_norm": "input_layernorm", "mlp_post_norm": "post_attention_layernorm"}
    heads_fill_hidden_size = True
    norms = property(lambda self: "after" if self.swin_norm else "before")
    attention_options = dict(qk_norm=QKNorm(1e-5, kind="layer", per_head=True))  # independent of rms_norm_eps

    def hf_config_fields(self) -> Mapping[str, Any]:
        """Fields of the smallest image tokenizer that the class builds."""
        sizes = {"base_channels": 32, "channel_multiplier": [1], "num_res_blocks": 1}
        return {"vq_config": {**sizes, "embed_dim": 4, "num_embeddings": 4}, "vocabulary_map": {"<image>": 0}}


class AriaText(Llama):
    """Aria's language model: Llama's attention, experts and shared experts in every layer."""

    sizes = dict(vocab=32000, hidden=4096, mlp=4096, layers=32, heads=32)
    moe_num_experts: PositiveInt = 8
    moe_topk: PositiveInt = 2
    moe_num_shared_experts: NonNegativeInt = 2
    required_values = {"hidden_act": "silu"}  # that of the routed experts, for any hidden_act
    checkpoint_conversion_mapping = (
        (r"\.experts\.fc1\.weight$", ".experts.gate_up_proj"),
        (r"\.experts\.fc2\.weight$", ".experts.down_proj"),
    )
    transposed_weights = ("blocks.*.mlp.experts.",)
    task_heads = DECODER
    null_means = NULL_HEADS
    layer_module_names = {**expert_modules(router="router"), **mlp_modules("mlp.shared_experts", at="mlp.shared")}
    layer_tensor_names = EXPERT_TENSORS
    all_layers_have_experts = True
    expert_count, shared_expert_count = "moe_num_experts", "moe_num_shared_experts"
    expert_width, expert_top_k = "intermediate_size", "moe_topk"
    experts_options = dict(shared_bias=attrgetter("mlp_bias"))

    def experts(self, **overrides: Any) -> Experts:
        experts = super().experts()
        if self.mlp_bias and experts.shared is None:
            raise ConfigError("mlp_bias = true with moe_num_shared_experts = 0: biases on an MLP of width 0")
        return experts


IMAGE_LAYERS = [3, 8, 13, 18, 23, 28, 33, 38]


class Mllama(Decoder):
    """Llama 3.2 Vision's language model: Llama's layer; some layers attend to the patches of an image instead of to
    tokens."""

    sizes = dict(vocab=128256, hidden=4096, mlp=14336, layers=40, heads=32, kv_heads=8, context=131072)
    defaults = dict(rms_norm_eps=1e-5, rope_theta=500_000.0)
    cross_attention_layers: list[StrictInt] | None = IMAGE_LAYERS
    class_prefixes = ("Mllama", "MllamaText")
    required_values = {"tie_word_embeddings": False}
    dropouts = {}
    task_heads = {"ForCausalLM": TaskHead("MllamaForCausalLM"), "Model": TaskHead("MllamaTextModel", "none", body="")}
    layer_module_names = {
        "cross_norm": "input_layernorm",
        **submodules("cross", "cross_attn", "q_proj k_proj v_proj o_proj q_norm k_norm", scores="", values=""),
    }
    layer_tensor_names = {"cross_add.gate.weight": "cross_attn_attn_gate", "mlp_add.gate.weight": "cross_attn_mlp_gate"}
    heads_fill_hidden_size = True
    source = 4 * 1601  # of one image: four tiles, each of (560 / 14)² patches and a class token

    @property
    def image_layers(self) -> set[int]:
        """Layers that attend to an image."""
        given = IMAGE_LAYERS if self.cross_attention_layers is None else self.cross_attention_layers
        return {*given} & {*range(self.num_hidden_layers)}

    def hf_unsupported(self) -> str | None:
        first = 0 in self.image_layers
        return "it reads the cache length from its first layer, which here caches image states" if first else None

    def layers(self) -> list[Layer]:
        images = self.image_layers
        return [Layer(kind="image" if number in images else "") for number in range(self.num_hidden_layers)]

    def block(self, layer: Layer) -> Block:
        if not layer.kind:
            return super().block(layer)
        sizes: dict[str, Any] = self.head_sizes(layer)
        cross, norm = CrossAttention(hidden=self.hidden_size, qk_norm=self.rms_norm_eps, **sizes), self.norm()
        add = GatedResidual(hidden=self.hidden_size)
        return Block((Sublayer(cross, norm, add=add), Sublayer(self.dense_mlp(), norm, add=add)))

    def embeddings_and_head(self) -> dict[str, Any]:
        return {**super().embeddings_and_head(), "encoder": Encoder(None, ()) if self.image_layers else None}

    def embedding(self, **overrides: Any) -> Embedding:
        """Embedding with eight more rows than the head."""
        return super().embedding(rows=self.vocab_size + 8)


class SmolLM3(Llama):
    """SmolLM3: Llama's layer; every fourth layer has no rotary embedding."""

    sizes = dict(vocab=128256, hidden=2048, layers=36, heads=16, kv_heads=4, context=32768)
    defaults = dict(tie_word_embeddings=True, rope_theta=2_000_000.0)
    use_sliding_window: StrictBool = False
    sliding_window: Window | None = None
    layer_types: LayerTypes | None = None
    no_rope_layers: Flags | None = None
    no_rope_layer_interval: PositiveInt = 4
    reference_only = "sliding_window"
    null_means = {"num_key_value_heads": "num_attention_heads"}

    def layers(self) -> list[Layer]:
        """Layers without rotary embedding have the window, if there is one."""
        rotary = rope_layers(self.no_rope_layers, self.num_hidden_layers, self.no_rope_layer_interval)
        window, off = (self.sliding_window, "") if self.use_sliding_window else (None, "use_sliding_window")
        seen = self.windows(lambda number: bool(window) and not rotary[number], window, off)
        return [Layer(window, rotary=on) for window, on in zip(seen, rotary, strict=True)]


class CS336(DecoderBase):
    """The Transformer LM of Stanford's course CS336: Llama without grouped queries, with the course's names."""

    context_length: PositiveInt
    num_layers: LayerCount
    d_model: PositiveInt
    num_heads: PositiveInt
    d_ff: PositiveInt
    rope_theta: PositiveFloat = 10_000.0

    context = property(lambda self: self.context_length)
    hidden_size = property(lambda self: self.d_model)
    num_hidden_layers = property(lambda self: self.num_layers)
    num_attention_heads = num_key_value_heads = property(lambda self: self.num_heads)
    intermediate_size = property(lambda self: self.d_ff)
    hidden_act, rms_norm_eps, tie_word_embeddings = "silu", 1e-5, False
    rope_scaling = rope_parameters = None
    constant_axes = frozenset("G")
    class_prefixes = ()
    head_dim = property(lambda self: self.divide("d_model", "num_heads"))


class OpenELM(DecoderBase):
    """OpenELM: numbers of heads and MLP widths that grow with depth, norms over queries and keys, a tied head."""

    model_dim: PositiveInt
    num_transformer_layers: LayerCount
    head_dim: PositiveInt
    max_context_length: PositiveInt
    num_query_heads: list[PositiveInt]
    num_kv_heads: list[PositiveInt]
    ffn_multipliers: list[PositiveFloat]
    ffn_dim_divisor: PositiveInt
    ffn_with_glu: StrictBool
    normalize_qk_projections: StrictBool
    share_input_output_layers: StrictBool
    activation_fn_name: StrictStr = "swish"
    normalization_layer_name: StrictStr = "rms_norm"
    rope_freq_constant: PositiveFloat = 10_000

    rms_norm_eps = 1e-6
    head_names = "num_query_heads of a layer by its num_kv_heads"
    qk_norm = property(lambda self: QKNorm(0) if self.normalize_qk_projections else None)
    required_values = {"normalization_layer_name": "rms_norm"}
    mlp_options = dict(gated=attrgetter("ffn_with_glu"))
    tie_word_embeddings = property(lambda self: self.share_input_output_layers)
    attribute_map = {
        "hidden_size": "model_dim",
        "num_hidden_layers": "num_transformer_layers",
        "max_position_embeddings": "max_context_length",
    }
    ignored_fields = "num_gqa_groups qkv_multipliers rope_max_length"
    task_heads = {"ForCausalLM": CAUSAL_MODEL}
    activation = property(lambda self: "silu" if self.activation_fn_name == "swish" else self.activation_fn_name)

    def rope(self) -> Rotary:
        return Rotary(self.rope_freq_constant)

    def mlp_width(self, multiplier: float) -> int:
        """Width of an MLP as a multiple of the hidden size, rounded to ffn_dim_divisor."""
        wanted, divisor = multiplier * self.model_dim, self.ffn_dim_divisor
        width = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
        return width + divisor if width < 0.9 * wanted else width

    def layers(self) -> list[Layer]:
        for name in ("num_query_heads", "num_kv_heads", "ffn_multipliers"):
            check_length(name, getattr(self, name), self.num_transformer_layers, of="num_transformer_layers")
        widths = map(self.mlp_width, self.ffn_multipliers)
        rows = zip(self.num_query_heads, self.num_kv_heads, widths, strict=True)
        return [Layer(heads=heads, kv_heads=kv_heads, width=width) for heads, kv_heads, width in rows]


class Telechat(DecoderBase):
    """TeleChat 1 and 2: Llama's layer with biases on the last projection of attention and of the MLP."""

    hidden_size: PositiveInt
    n_layer: LayerCount
    n_head: PositiveInt
    num_key_value_heads: PositiveInt = Field(default_factory=lambda fields: fields["n_head"])
    ffn_hidden_size: PositiveInt
    tie_word_embeddings: StrictBool
    max_position_embeddings: PositiveInt | None = None
    seq_length: PositiveInt | None = None
    training_seqlen: PositiveInt = 8192
    embed_layernorm: StrictBool = False
    apply_residual_connection_post_layernorm: StrictBool = False
    layer_norm_epsilon: PositiveFloat = 1e-5

    hidden_act, eps_field, attention_out_bias = "silu", "layer_norm_epsilon", True
    rope_theta = rope_scaling = rope_parameters = None
    head_dim = DIVIDED_HEAD_DIM
    intermediate_size = property(lambda self: self.ffn_hidden_size)
    attribute_map = {"n_embed": "hidden_size", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    ignored_fields = "base_seqlen flash_attn intermediate_size logn"
    required_values = {"embed_layernorm": False, "apply_residual_connection_post_layernorm": False}
    class_prefixes = ("Telechat", "Telechat2", "TeleChat", "TeleChat2")
    task_heads = {"ForCausalLM": CAUSAL_MODEL}
    mlp_options = dict(down_bias=True)
    context = property(lambda self: self.max_position_embeddings or self.seq_length or self.training_seqlen)
