"""Decoders with experts whose lineage has few models: Kolibri 1, Flint, Trinity, Laguna, Step, Grok-1, DBRX."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Experts, Gate, QKNorm
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.families.decoder import (
    DIVIDED_HEAD_DIM,
    EXPERT_MODULES,
    EXPERT_TENSORS,
    QK_NORMS,
    SINK_MODULES,
    SINK_TENSORS,
    AnyAttention,
    Decoder,
    DecoderBase,
    Layer,
    Window,
    expert_modules,
)
from tfacct.families.family import SAME_AS_QUERY_HEADS, attention_modules, mlp_modules, submodules
from tfacct.families.family_config import FamilyConfig, validate
from tfacct.families.fields import (
    JsonDict,
    LayerCount,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    divide_exactly,
    is_positive,
    is_size,
    read_partial_rotary_factor,
    require_even,
)
from tfacct.families.known_fields import is_ignored_field
from tfacct.families.layer_kinds import (
    FULL,
    SLIDING,
    LayerTypes,
    MlpLayerTypes,
    check_first_dense,
    check_length,
    check_top_k,
    moe_layers,
    sizes_by_layer,
    sparse_layers,
    validated_layer_types,
)
from tfacct.families.task_heads import CAUSAL_MODEL, DECODER, inside_composite


class SharedExpertDecoder(Decoder):
    """Experts with one shared expert; norms of queries and keys."""

    layer_types: LayerTypes | None = None
    moe_intermediate_size: PositiveInt = 512
    num_experts_per_tok: PositiveInt = 8

    layer_module_names = {**EXPERT_MODULES, **QK_NORMS}
    layer_tensor_names = EXPERT_TENSORS
    qk_norm = QKNorm(0)
    experts_options = dict(shared=attrgetter("shared_expert_intermediate_size"))


class Kolibri1(SharedExpertDecoder):
    """Kolibri 1: windows in all layers but every fifth, which has no rotary embedding; norms around every sublayer;
    experts with a shared expert in every layer."""

    sizes = dict(vocab=128000, hidden=2560, layers=50, heads=48, kv_heads=4, head_dim=128, context=262144)
    defaults = dict(num_experts_per_tok=6)
    intermediate_size: PositiveInt | None = None  # type: ignore[assignment]
    sliding_window: Window = 513
    shared_expert_intermediate_size: PositiveInt = 512
    num_experts: PositiveInt = 384

    reference_only = "intermediate_size"
    attribute_map = {"num_local_experts": "num_experts"}
    checkpoint_conversion_mapping = (
        (r"\.post_attn_norm\.", ".post_self_attn_layernorm."),
        (r"\.post_ffn_norm\.", ".post_mlp_layernorm."),
        (r"\.moe\.router\.expert_bias$", ".mlp.gate.e_score_correction_bias"),
    )
    layer_module_names = {
        **mlp_modules("mlp.shared_experts", at="mlp.shared"),
        "attn_post_norm": "post_self_attn_layernorm",
        "mlp_post_norm": "post_mlp_layernorm",
    }
    norms = "around"

    def layers(self) -> list[Layer]:
        windows = self.windows(lambda number: (number + 1) % 5 != 0, self.sliding_window)
        return [Layer(window, experts=True, rotary=window is not None) for window in windows]


class Flint(SharedExpertDecoder):
    """Flint: Qwen3's attention with sinks, and a rotary embedding only in layers with a window; two dense layers, then
    experts with a shared expert."""

    sizes = dict(vocab=150144, hidden=2048, mlp=6144, layers=49, heads=32, kv_heads=4, head_dim=128, context=262144)
    defaults = dict(num_experts_per_tok=6)
    attention_bias: StrictBool = False
    sliding_window: Window = 513
    shared_expert_intermediate_size: PositiveInt = 1024
    num_experts: PositiveInt = 256
    decoder_sparse_step: PositiveInt = 1
    mlp_only_layers: list[NonNegativeInt] | None = None

    checkpoint_conversion_mapping = ((r"\.softmax_offset$", ".sinks"),)
    layer_module_names = {**mlp_modules("mlp.shared_expert", at="mlp.shared"), **SINK_MODULES}
    layer_tensor_names = SINK_TENSORS
    attention_options = dict(sinks=True)

    def has_window(self, number: int) -> bool:
        """True for layers with the window, if layer_types is absent."""
        return number >= 2 and number % 4 != 1 and number != self.num_hidden_layers - 1

    def layers(self) -> list[Layer]:
        windows = self.windows(self.has_window, self.sliding_window)
        dense = [0, 1] if self.mlp_only_layers is None else self.mlp_only_layers
        routed = moe_layers(self.num_hidden_layers, self.decoder_sparse_step, dense)
        return [Layer(window, some, rotary=window is not None) for window, some in zip(windows, routed, strict=True)]


class Grok1(DecoderBase):
    """Grok-1: norms around attention and experts, soft-capped attention scores, experts in every layer. The fields are
    those of the PyTorch port; fields that affect counts have no defaults."""

    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: LayerCount
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    num_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    max_position_embeddings: PositiveInt
    tie_word_embeddings: StrictBool = True
    residual_moe: StrictBool = False
    hidden_act: StrictStr = "gelu"
    rms_norm_eps: PositiveFloat = 1e-5
    rope_theta: PositiveFloat = 10_000.0
    attn_output_multiplier: PositiveFloat = 1.0
    max_attn_value: PositiveFloat = 30.0
    embedding_multiplier_scale: PositiveFloat = 1.0
    output_multiplier_scale: PositiveFloat = 1.0

    class_prefixes = ("Grok1Model", "Grok1")
    required_values = {"residual_moe": False}
    attribute_map = {"num_local_experts": "num_experts"}
    task_heads = {"ForCausalLM": CAUSAL_MODEL}
    head_dim = DIVIDED_HEAD_DIM
    rope_scaling = rope_parameters = None
    norms = "around"
    attention_options = dict(scale=attrgetter("attn_output_multiplier"), softcap=attrgetter("max_attn_value"))
    embedding_options = dict(scaled=True, factor=attrgetter("embedding_multiplier_scale"))
    head_options = dict(logit_scale=attrgetter("output_multiplier_scale"))
    expert_width = "intermediate_size"

    def layers(self) -> list[Layer]:
        return [Layer(experts=True)] * self.num_hidden_layers


DBRX_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "attn_config": {"kv_n_heads": 1, "clip_qkv": None, "rope_theta": None},
    "ffn_config": {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1, "ffn_act_fn": None},
}
"""Fields of both inner configs that are read here, and the class's defaults."""
DBRX_IGNORED = frozenset(
    """
    attn_pdrop moe_jitter_eps moe_loss_weight moe_normalize_expert_weights uniform_expert_assignment hidden_size
    model_type id2label
    """.split()
)
"""Fields of both that do not change counts."""


class Dbrx(DecoderBase):
    """DBRX: experts in every layer, clipped queries, keys and values, LayerNorms without bias."""

    vocab_size: PositiveInt = 32000
    d_model: PositiveInt = 2048
    n_layers: LayerCount = 24
    n_heads: PositiveInt = 16
    max_seq_len: PositiveInt = 2048
    attn_config: JsonDict | None = None
    ffn_config: JsonDict | None = None
    num_key_value_heads: PositiveInt | None = None
    tie_word_embeddings: StrictBool = False
    rope_theta: PositiveFloat | None = None
    rope_scaling: JsonDict | None = None
    rope_parameters: JsonDict | None = None

    reference_only = "num_key_value_heads -attn_config -ffn_config"
    required_values = {"tie_word_embeddings": False}
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "max_position_embeddings": "max_seq_len",
    }
    task_heads = DECODER
    base_model_prefix = "transformer"
    transposed_weights = ("blocks.*.mlp.experts.down_proj",)
    module_names = {"embed": "transformer.wte", "final_norm": "transformer.norm_f", "lm_head": "lm_head"}
    layer_path = "transformer.blocks.*"
    norm_kind, norm_learned, rms_norm_eps = "layer", "scale", 1e-5
    layer_module_names = {
        "attn_norm": "norm_attn_norm.norm_1",
        **attention_modules("norm_attn_norm.attn", "Wqkv", "Wqkv", "Wqkv", "out_proj"),
        "mlp_norm": "norm_attn_norm.norm_2",
        "mlp.router": "ffn.router.layer",
        **submodules("mlp.experts", "ffn.experts.mlp", gate_proj="", up_proj="", down_proj=""),
    }
    layer_tensor_names = {
        "mlp.experts.gate_proj.weight": "ffn.experts.mlp.w1",
        "mlp.experts.up_proj.weight": "ffn.experts.mlp.v1",
        "mlp.experts.down_proj.weight": "ffn.experts.mlp.w2",
    }

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields, with defaults of the inner configs."""
        config, defaulted, unknown = validate(cls, raw)
        for field, known in DBRX_FIELDS.items():
            given = getattr(config, field) or {}
            sizes = {name: size for name, size in known.items() if size is not None and name not in given}
            defaulted |= {f"{field}.{name}": size for name, size in sizes.items()}
        return config, defaulted, unknown

    def hf_unsupported(self) -> str | None:
        """It needs two fields of attn_config that have no default."""
        given = self.attn_config or {}
        missing = [name for name in ("clip_qkv", "rope_theta") if given.get(name) is None]
        return f"it reads attn_config.{missing[0]}, which is missing from this config" if missing else None

    def inner(self, field: str) -> dict[str, Any]:
        """Values of an inner config. Raises ConfigError."""
        known, given = DBRX_FIELDS[field], getattr(self, field) or {}
        for name, value in given.items():
            read = name in known or name in DBRX_IGNORED or is_ignored_field(name)
            if not read and value not in (None, False, 0):
                raise self.refused(f"{field}.{name}", value)
        found = {name: given.get(name, default) for name, default in known.items()}
        for name, default in known.items():
            size = found[name]
            if isinstance(default, int) and not is_size(size):
                raise ConfigError(f"{field}.{name} must be a whole number from 1, not {format_value(size)}")
            if name in ("clip_qkv", "rope_theta") and size is not None and not is_positive(size):
                raise ConfigError(f"{field}.{name} must be a number above 0, not {format_value(size)}")
        return found

    def block(self, layer: Layer) -> Block:
        attn, ffn = self.inner("attn_config"), self.inner("ffn_config")
        kv_heads, experts, active = attn["kv_n_heads"], ffn["moe_num_experts"], ffn["moe_top_k"]
        self.require_if_given({"num_key_value_heads": kv_heads})  # the class also writes it
        check_top_k(active, experts, ("moe_top_k", "moe_num_experts"))
        act = ffn["ffn_act_fn"] or {}
        if not isinstance(act, Mapping):
            raise ConfigError(f"ffn_config.ffn_act_fn must be an object with fields, not {format_value(act)}")
        attention = Attention(
            hidden=self.d_model,
            kv_heads=kv_heads,
            group=divide_exactly(self.n_heads, kv_heads, "n_heads by attn_config.kv_n_heads"),
            head_dim=require_even(self.divide("d_model", "n_heads"), "d_model / n_heads ="),
            clip=attn["clip_qkv"],
            rotary=self.rope(),
        )
        mlp = Experts(
            hidden=self.d_model,
            experts=experts,
            active=active,
            width=ffn["ffn_hidden_size"],
            activation=act.get("name", "silu"),
        )
        return Block.of(attention, mlp, norm=self.norm())


class Afmoe(Decoder):
    """Trinity (AFMoE): gated attention, norms around every sublayer, rotary embedding in windowed layers only; experts
    with shared experts after the first dense layers."""

    sizes = dict(vocab=200192, hidden=2048, mlp=6144, layers=32, heads=16, kv_heads=SAME_AS_QUERY_HEADS, context=16384)
    defaults = dict(head_dim=128, rms_norm_eps=1e-5)
    attention_bias: StrictBool = False
    moe_intermediate_size: PositiveInt = 1408
    num_experts: PositiveInt = 64
    num_experts_per_tok: PositiveInt = 6
    num_shared_experts: NonNegativeInt = 2
    num_dense_layers: NonNegativeInt = 1
    sliding_window: Window | None = 1024
    global_attn_every_n_layers: PositiveInt = 4
    layer_types: LayerTypes | None = None
    mup_enabled: StrictBool = False

    reference_only = "mup_enabled"
    ignored_fields = """route_scale route_norm score_func n_group topk_group num_expert_groups num_limited_groups
        load_balance_coeff use_grouped_mm"""
    layer_module_names = {
        **expert_modules(router="router.gate"),
        **mlp_modules("mlp.shared_experts", at="mlp.shared"),
        **QK_NORMS,
        "attn.gate_proj": "self_attn.gate_proj",
        "attn_post_norm": "post_attention_layernorm",
        "mlp_norm": "pre_mlp_layernorm",
        "mlp_post_norm": "post_mlp_layernorm",
    }
    layer_tensor_names = {**EXPERT_TENSORS, "mlp.routing.bias": "mlp.expert_bias"}
    qk_norm = QKNorm(0)
    norms = "around"
    attention_options = dict(gate=Gate(bias=False))
    experts_options = dict(choice_bias=True)
    shared_expert_count = "num_shared_experts"
    embedding_options = dict(scaled=attrgetter("mup_enabled"))

    def layers(self) -> list[Layer]:
        every = self.global_attn_every_n_layers
        windows = self.windows(lambda number: (number + 1) % every != 0, self.sliding_window)
        first = self.num_dense_layers
        return [Layer(w, experts=number >= first, rotary=w is not None) for number, w in enumerate(windows)]


class GatedHeadsDecoder(SharedExpertDecoder):
    """Gated attention; query heads and rotary embedding differ by layer."""

    attention_bias: StrictBool = False
    mlp_layer_types: MlpLayerTypes | None = None

    layer_module_names = {**mlp_modules("mlp.shared_experts", at="mlp.shared"), "attn.gate_proj": "self_attn.g_proj"}
    partial_rotary = True
    head_names = "query heads of a layer by num_key_value_heads"
    experts_options = dict(shared_first=True)


class Laguna(GatedHeadsDecoder):
    """Laguna: gated attention with query heads, window and rotary embedding by layer; a dense layer, then experts with
    a shared expert."""

    sizes = dict(vocab=100352, hidden=2048, mlp=8192, layers=40, heads=48, kv_heads=8, head_dim=128, context=131072)
    gating: StrictBool | StrictStr = True
    num_attention_heads_per_layer: list[PositiveInt] | None = None
    sliding_window: Window = 512
    shared_expert_intermediate_size: PositiveInt = 512
    num_experts: PositiveInt = 256
    decoder_sparse_step: PositiveInt = 1
    mlp_only_layers: list[NonNegativeInt] | None = None
    gating_types: list[StrictStr] | None = None

    reference_only = "decoder_sparse_step mlp_only_layers gating_types"
    checkpoint_conversion_mapping = (
        (r"\.mlp\.experts\.e_score_correction_bias$", ".mlp.gate.e_score_correction_bias"),
        (r"\.mlp\.shared_expert\.", ".mlp.shared_experts."),
    )
    ignored_fields = "moe_apply_router_weight_on_input moe_routed_scaling_factor moe_router_logit_softcapping"
    layer_tensor_names = {"mlp.routing.bias": "mlp.gate.e_score_correction_bias"}
    partial_rotary_factor = 1.0
    rope_by_kind = {
        FULL: {"rope_type": "default", "rope_theta": 500_000.0, "partial_rotary_factor": 0.5},
        SLIDING: {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
    }
    experts_options = dict(choice_bias=True)

    def check(self) -> None:
        """Raises ConfigError for another gate, and for published fields that contradict those that the class reads."""
        if self.gating not in (True, "per-head", "per-element"):
            raise self.refused("gating", self.gating)
        routed = sparse_layers(self.mlp_layer_types, self.num_hidden_layers)
        dense = [number for number, experts in enumerate(routed) if not experts]
        gates = ["per_element" if self.gating == "per-element" else "per_head"] * len(routed)
        self.require_if_given({"decoder_sparse_step": 1, "mlp_only_layers": dense, "gating_types": gates})
        super().check()

    def layers(self) -> list[Layer]:
        count, heads = self.num_hidden_layers, self.num_attention_heads_per_layer
        windows = self.windows(lambda _: False, self.sliding_window)
        if heads is None:
            heads = [self.num_attention_heads] * count
        check_length("num_attention_heads_per_layer", heads, count)
        rows = zip(windows, sparse_layers(self.mlp_layer_types, count), heads, strict=True)
        return [Layer(window, some, heads=layer_heads) for window, some, layer_heads in rows]

    def attention(self, layer: Any, **overrides: Any) -> AnyAttention:
        of: Any = "elements" if self.gating == "per-element" else "heads"
        return super().attention(layer, gate=Gate(of, "softplus", bias=False))


class Step3p5(GatedHeadsDecoder):
    """Step 3.5 and 3.7: a gate per head, more query heads in windowed layers; dense layers first, then experts
    with a shared expert."""

    sizes = dict(vocab=128815, hidden=4096, mlp=11264, layers=45, heads=64, kv_heads=8, head_dim=128, context=128000)
    defaults = dict(rms_norm_eps=1e-5, moe_intermediate_size=1280)
    rope_theta: PositiveFloat | Annotated[list[PositiveFloat], Field(min_length=1)] | None = None  # type: ignore[assignment]
    partial_rotary_factors: list[float] | None = None
    mlp_bias: StrictBool = False
    gating: StrictBool = True
    use_head_wise_attn_gate: StrictBool = True
    query_pre_attn_scalar: PositiveFloat | None = None
    sliding_window: Window | None = None
    num_sliding_attention_heads: PositiveInt | None = None
    attention_other_setting: JsonDict | None = None
    per_layer_config: JsonDict | None = None  # by the number of the layer, as transformers 5 writes these heads
    moe_layers_enum: StrictStr | list[NonNegativeInt] | None = None  # a text with commas, or a list
    first_k_dense_replace: NonNegativeInt | None = None
    n_routed_experts: PositiveInt = 288
    share_expert_dim: PositiveInt = 1280
    num_nextn_predict_layers: NonNegativeInt = 0

    class_prefixes = ("Step3p7", "Step3p7Text", "Step3p7Flash")
    task_heads = inside_composite("Step3p7ForConditionalGeneration", "Step3p7TextModel")
    task_heads = {**task_heads, "ForCausalLM": task_heads["ForConditionalGeneration"]}
    required_values = {"gating": True, "use_head_wise_attn_gate": True}
    reference_only = (
        "first_k_dense_replace num_nextn_predict_layers rope_theta -attention_other_setting -per_layer_config"
    )
    attribute_map = {
        "num_attention_groups": "num_key_value_heads",
        "moe_num_experts": "n_routed_experts",
        "num_experts": "n_routed_experts",
        "moe_top_k": "num_experts_per_tok",
        "share_expert_dims": "share_expert_dim",
    }
    ignored_fields = """moe_router_scaling_factor swiglu_limits swiglu_limits_shared att_impl_type moe_router_activation
        norm_expert_weight need_fp32_gate use_moe_router_bias use_moe zero_centered yarn_only_types n_shared_experts
        scoring_func moe_layer_offset moe_every_n_layer use_rope_layers"""
    checkpoint_conversion_mapping = (
        (r"^model\.layers\.\*\.moe\.(gate|up|down)_proj\.weight$", r"blocks.*.mlp.experts.\1_proj.weight"),
        (r"\.moe\.router_bias$", ".mlp.gate.e_score_correction_bias"),
        (r"\.moe\.gate\.", ".mlp.gate."),
        (r"\.share_expert\.", ".mlp.shared_experts."),
    )
    qk_norm = QKNorm(0, less_one=True)
    expert_count = "n_routed_experts"
    rope_by_kind = {}
    norm_weight_minus_one = True
    activation = "silu"  # for any hidden_act
    experts_options = dict(shared=attrgetter("share_expert_dim"), shared_bias=attrgetter("mlp_bias"))

    def one_per_layer(self, values: list[Any], name: str) -> list[Any]:
        """A list with one entry per layer; additional entries may be about MTP layers. Raises ConfigError."""
        layers = self.num_hidden_layers
        if len(values) not in (layers, layers + self.num_nextn_predict_layers):
            raise ConfigError(f"{name} names {len(values):,} layers, and num_hidden_layers is {layers:,}")
        return values[:layers]

    def kinds(self) -> list[str]:
        """The kind of each layer. Raises ConfigError."""
        layers = self.num_hidden_layers
        if self.layer_types is None:
            return [FULL] * layers
        kinds = validated_layer_types(self.one_per_layer(self.layer_types, "layer_types"), layers, (FULL, SLIDING))
        if SLIDING in kinds and self.sliding_window is None:
            raise ConfigError(f"layer {kinds.index(SLIDING)} has {SLIDING}, but sliding_window is missing")
        return kinds

    def moe_layers(self) -> list[bool]:
        """True for each layer with experts. Raises ConfigError."""
        layers, numbers = self.num_hidden_layers, self.moe_layers_enum
        if self.mlp_layer_types is not None:
            return [kind == "sparse" for kind in self.one_per_layer(self.mlp_layer_types, "mlp_layer_types")]
        if numbers is None:
            return [number >= 3 for number in range(layers)]
        try:
            routed = {int(n) for n in (numbers.split(",") if isinstance(numbers, str) else numbers) if str(n).strip()}
        except ValueError:
            raise self.refused("moe_layers_enum", numbers) from None
        return [number in routed for number in range(layers)]

    def windowed_heads(self) -> int:
        """Query heads of a layer with a window. Raises ConfigError."""
        other = self.attention_other_setting or {}
        built: dict[str, Any] = {"num_attention_groups": self.num_key_value_heads, "head_dim": self.head_dim}
        built |= {"true_head_dim": self.head_dim, "attention_type": SLIDING}
        for name, value in other.items():
            if name not in ("num_attention_heads", *built) or value != built.get(name, value):
                raise self.refused(f"attention_other_setting.{name}", value)
        heads = self.num_sliding_attention_heads or other.get("num_attention_heads", self.num_attention_heads)
        if not is_size(heads):
            raise ConfigError("attention_other_setting.num_attention_heads must be a whole number from 1")
        return heads

    def heads_of(self, number: int, kind: str) -> int:
        """Query heads of a layer. Raises ConfigError."""
        if self.per_layer_config is not None:
            name = "num_attention_heads"
            return sizes_by_layer(self, (name,)).get(number, {}).get(name, self.num_attention_heads)
        return self.num_attention_heads if kind == FULL else self.windowed_heads()

    def layers(self) -> list[Layer]:
        routed = self.moe_layers()
        check_first_dense(self.first_k_dense_replace, routed)
        windows = {FULL: None, SLIDING: self.sliding_window}
        both = zip(self.kinds(), routed, strict=True)
        return [Layer(windows[kind], some, heads=self.heads_of(n, kind)) for n, (kind, some) in enumerate(both)]

    def layer_rope_parameters(self, layer: Any) -> Mapping[str, Any]:
        """By kind in rope_parameters, or else by layer in rope_theta and partial_rotary_factors."""
        by_kind, kinds, kind = self.rope_parameters or {}, self.kinds(), FULL if layer.window is None else SLIDING
        if all(isinstance(by_kind.get(one), Mapping) for one in kinds):
            parameters: Mapping[str, Any] = by_kind[kind]
            return parameters
        theta, parts, first = self.rope_theta or 10_000.0, self.partial_rotary_factors, kinds.index(kind)
        base = self.one_per_layer(theta, "rope_theta")[first] if isinstance(theta, list) else theta
        part = 1.0 if parts is None else self.one_per_layer(parts, "partial_rotary_factors")[first]
        scaling = (self.rope_scaling or {}) if kind == FULL else {}
        return {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": part, **scaling}

    def rotary_size(self, layer: Any = None) -> int:
        part = read_partial_rotary_factor(1.0, self.layer_rope_parameters(layer))
        return require_even(int(self.head_dim * part), "rotary dimensions of a head:")

    def attention(self, layer: Any, **overrides: Any) -> AnyAttention:
        size, scale = self.rotary_size(layer), (self.query_pre_attn_scalar or self.head_dim) ** -0.5
        gate = Gate("heads", bias=False)
        return super().attention(layer, rope_dim=None if size == self.head_dim else size, scale=scale, gate=gate)
