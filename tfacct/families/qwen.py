"""Qwen's language models: Llama's fields, and a window with its own switch."""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from tfacct.architecture.parts import Attention, Gate, Part, QKNorm, Scales
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import (
    EXPERT_MODULES,
    EXPERT_TENSORS,
    QK_NORMS,
    SINK_MODULES,
    SINK_TENSORS,
    AnyAttention,
    Decoder,
    DecoderBase,
    Layer,
    PartialRotaryDecoder,
    Window,
    with_experts,
)
from tfacct.families.family import SAME_AS_QUERY_HEADS, mlp_modules
from tfacct.families.fields import Fraction, NonNegativeInt, PositiveFloat, PositiveInt, StrictBool, require_even
from tfacct.families.hybrid import DeltaDecoder, delta_modules, delta_tensors
from tfacct.families.layer_kinds import FULL, SLIDING, Flags, LayerTypes, MlpLayerTypes, moe_layers, sparse_layers
from tfacct.families.task_heads import CLASSIFYING, DECODER, LABELLING, REWARD, STEPS

SIZES = dict(vocab_size=151936, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32)


class Qwen(Decoder):
    """The shared fields. An absent num_key_value_heads means 32, for any number of query heads."""

    sizes = dict(mlp=22016, kv_heads=32, context=32768)
    use_sliding_window: StrictBool = False
    sliding_window: NonNegativeInt | None = 4096
    max_window_layers: NonNegativeInt = 28
    layer_types: LayerTypes | None = None
    is_causal: StrictBool | None = None
    in_blocks: StrictBool | None = None
    reference_only = "sliding_window max_window_layers"
    null_means = {"num_key_value_heads": "num_attention_heads"}
    task_heads = LABELLING
    causal = property(lambda self: self.is_causal is not False)
    mask = property(lambda self: "blocks" if self.in_blocks else "causal")
    """`in_blocks` is a field of tfacct, not of published configs."""
    attention_options = dict(causal=attrgetter("causal"), mask=attrgetter("mask"))

    def hf_cache(self) -> Transformer:
        """The class also caches keys and values if is_causal is false."""
        if self.causal:
            return super().hf_cache()

        def cached(part: Part) -> Part:
            return replace(part, causal=True) if isinstance(part, Attention) else part

        return self.transformer().mapped(cached)

    @property
    def window(self) -> int | None:
        """The window, None if use_sliding_window is off. Raises ConfigError."""
        if not self.use_sliding_window or self.sliding_window is None:
            return None
        if self.sliding_window < 2:
            raise ConfigError(
                f"sliding_window = {self.sliding_window} must be at least 2", "use_sliding_window=false switches it off"
            )
        if not self.causal:
            raise self.refused("is_causal", False)
        return self.sliding_window

    def has_window(self, number: int) -> bool:
        """True for layers with the window, if layer_types is absent."""
        return number >= self.max_window_layers

    def layers(self) -> list[Layer]:
        off, there = "" if self.use_sliding_window else "use_sliding_window", self.window
        return [Layer(w) for w in self.windows(lambda number: bool(there) and self.has_window(number), there, off)]


class Qwen2(Qwen):
    """Qwen2 and Qwen2.5: Llama's layer with biases on q, k and v, which no config field mentions."""

    nested_defaults = SIZES
    task_heads = {**LABELLING, "ForRewardModel": REWARD, "ForProcessRewardModel": STEPS}
    ignored_fields = "attention_bias qkv_bias dual_chunk_attention_config"  # none is read by the class
    attention_options = dict(qkv_bias=True, out_bias=False)
    pooler_options = dict(reads="each", activation="relu")  # the first of a reward model's two projections

    def hf_unsupported(self) -> str | None:
        return None if self.task_head.auto else "transformers has no such class; the model uses custom code"


class Qwen3(Qwen):
    """Qwen3: Llama's layer with norms of query and key heads, and an independent head size."""

    sizes = dict(head_dim=128)
    attention_bias: StrictBool = False
    nested_defaults = SIZES
    checkpoint_conversion_mapping = (  # Cosmos 3's
        (r"\.self_attn\.(to_([qkv])|to_(o)ut)\.", r".self_attn.\2\3_proj."),
        (r"\.self_attn\.norm_([qk])\.", r".self_attn.\1_norm."),
    )
    layer_module_names = QK_NORMS
    qk_norm = QKNorm(0)


class GatedSharedExpert(DecoderBase):
    """Experts, and one shared expert with its own width and a gate; dense layers by decoder_sparse_step and
    mlp_only_layers."""

    moe_intermediate_size: PositiveInt = 512
    shared_expert_intermediate_size: PositiveInt = 512
    num_experts: PositiveInt = 512
    num_experts_per_tok: PositiveInt

    layer_module_names = {
        **EXPERT_MODULES,
        **mlp_modules("mlp.shared_expert", at="mlp.shared"),
        "mlp.shared_gate": "mlp.shared_expert_gate",
    }
    layer_tensor_names = EXPERT_TENSORS
    experts_options = dict(shared=attrgetter("shared_expert_intermediate_size"), shared_gate=True)

    def layers(self) -> list[Layer]:
        routed = moe_layers(self.num_hidden_layers, self.decoder_sparse_step, self.mlp_only_layers)
        return with_experts(super().layers(), routed)


class Qwen2Moe(GatedSharedExpert, Qwen):
    """Qwen2-MoE: Qwen2's attention; experts, and one gated shared expert."""

    sizes = dict(mlp=5632, kv_heads=16)
    defaults = dict(
        moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_experts=60, num_experts_per_tok=4
    )
    qkv_bias: StrictBool = True
    decoder_sparse_step: PositiveInt = 1
    mlp_only_layers: list[NonNegativeInt] | None = None
    null_means = {}
    nested_defaults = {**SIZES, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16}
    attention_options = dict(qkv_bias=attrgetter("qkv_bias"))

    def has_window(self, number: int) -> bool:
        """Every other of the first max_window_layers layers."""
        return number % 2 == 0 and number < self.max_window_layers


class Qwen3Moe(Qwen):
    """Qwen3-MoE: Qwen3's attention, and experts. The window, if switched on, is in every layer."""

    sizes = dict(mlp=6144, kv_heads=4)
    attention_bias: StrictBool = False
    moe_intermediate_size: PositiveInt = 768
    num_experts: PositiveInt = 128
    num_experts_per_tok: PositiveInt = 8
    decoder_sparse_step: PositiveInt = 1
    mlp_only_layers: list[NonNegativeInt] | None = None
    null_means = {}
    nested_defaults = {**SIZES, "hidden_size": 2048, "num_hidden_layers": 24}
    attribute_map = {"num_local_experts": "num_experts"}
    ignored_fields = "use_qk_norm qkv_bias dual_chunk_attention_config"  # the class has the norms and no such biases
    layer_module_names, layer_tensor_names = {**QK_NORMS, **EXPERT_MODULES}, EXPERT_TENSORS
    qk_norm = QKNorm(0)

    def layers(self) -> list[Layer]:
        """The class's masks ignore layer_types and max_window_layers."""
        if self.layer_types is not None and SLIDING in self.layer_types:
            raise self.refused("layer_types", self.layer_types)
        routed = moe_layers(self.num_hidden_layers, self.decoder_sparse_step, self.mlp_only_layers)
        return [Layer(self.window, experts=some) for some in routed]


class QwenNext(DeltaDecoder):
    """The fields of Qwen3-Next and Qwen3.5: DeltaNet in three layers of four, gated attention in the fourth."""

    sizes = dict(head_dim=256, context=32768)
    attention_bias: StrictBool = False
    partial_rotary_factor: Fraction = 0.25
    linear_conv_kernel_dim: PositiveInt = 4
    linear_key_head_dim: PositiveInt = 128
    linear_value_head_dim: PositiveInt = 128
    linear_num_key_heads: PositiveInt = 16
    linear_num_value_heads: PositiveInt = 32
    full_attention_interval: PositiveInt = 4
    attn_output_gate: StrictBool = True
    required_values = {"attn_output_gate": True}
    ignored_fields = "mamba_ssm_dtype output_gate_type"
    layer_module_names = {
        **QK_NORMS,
        "attn.gate_proj": "self_attn.q_proj",
        **delta_modules("linear_attn", out_norm="norm", out_proj="out_proj"),
    }
    layer_tensor_names = delta_tensors("linear_attn")
    qk_norm = QKNorm(0, less_one=True)
    norm_weight_minus_one = True
    partial_rotary = True
    attention_options = dict(gate=Gate())

    def layers(self) -> list[Layer]:
        kinds = self.kinds(lambda number: (number + 1) % self.full_attention_interval == 0)
        return [Layer(kind=kind) for kind in kinds]


class Qwen3Next(GatedSharedExpert, QwenNext):
    """Qwen3-Next: gated DeltaNet in three layers of four, attention with an output gate in the fourth; experts, and one
    gated shared expert."""

    sizes = dict(vocab=151936, hidden=2048, mlp=5632, layers=48, heads=16, kv_heads=2)
    defaults = dict(num_experts_per_tok=10)
    decoder_sparse_step: PositiveInt = 1
    mlp_only_layers: list[NonNegativeInt] | None = None
    task_heads = LABELLING
    attribute_map = {"num_local_experts": "num_experts"}
    layer_module_names = delta_modules(
        "linear_attn",
        "",
        **dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj"), "in_proj_qkvz"),
        **dict.fromkeys(("rate_proj", "decay_proj"), "in_proj_ba"),
    )


class Qwen3_5(QwenNext):
    """Qwen3.5: Qwen3-Next's layers with dense MLPs and one projection each for DeltaNet's gate, rates and decays."""

    sizes = dict(vocab=248320, hidden=4096, mlp=12288, layers=32, heads=16, kv_heads=4)
    class_prefixes = ("Qwen3_5", "Qwen3_5Text")
    task_heads = CLASSIFYING
    layer_module_names = delta_modules(
        "linear_attn",
        "",
        **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "in_proj_qkv"),
        gate_proj="in_proj_z",
        rate_proj="in_proj_b",
        decay_proj="in_proj_a",
    )


class Qwen3_5Moe(GatedSharedExpert, Qwen3_5):
    """Qwen3.5 with experts: Qwen3.5's layers with experts and one gated shared expert instead of dense MLPs."""

    sizes = dict(hidden=2048, layers=40, kv_heads=2)
    defaults = dict(num_experts=256, num_experts_per_tok=8)
    intermediate_size: PositiveInt | None = None  # type: ignore[assignment]  # the class has none
    class_prefixes = ("Qwen3_5Moe", "Qwen3_5MoeText")
    reference_only = "intermediate_size"
    attribute_map = {"num_local_experts": "num_experts"}
    task_heads = DECODER
    decoder_sparse_step, mlp_only_layers = 1, None  # the class has neither: every layer has experts


class Qwen1(PartialRotaryDecoder):
    """Qwen 1: Llama's layer with biases on q, k and v, in one matrix; intermediate_size is twice the MLP's width."""

    sizes = dict(vocab=151936, hidden=4096, mlp=22016, layers=32, heads=32, kv_heads=SAME_AS_QUERY_HEADS, context=8192)
    defaults = dict(head_dim=128, partial_rotary_factor=1.0)
    no_bias: StrictBool = True
    use_cache_quantization: StrictBool = False
    class_prefixes = ("QWen", "Qwen2")
    required_values = {"no_bias": True, "use_cache_quantization": False}
    attribute_map = {
        "kv_channels": "head_dim",
        "layer_norm_epsilon": "rms_norm_eps",
        "rotary_pct": "partial_rotary_factor",
        "rotary_emb_base": "rope_theta",
    }
    ignored_fields = """attn_dropout_prob emb_dropout_prob bf16 fp16 fp32 onnx_safe padded_vocab_size params_dtype
        scale_attn_weights softmax_in_fp32 tokenizer_type use_cache_kernel use_dynamic_ntk use_flash_attn
        use_logn_attn"""
    constant_axes = frozenset("G")
    checkpoint_conversion_mapping = (
        (r"^transformer\.wte\.", "model.embed_tokens."),
        (r"^transformer\.h\.", "model.layers."),
        (r"^transformer\.ln_f\.", "model.norm."),
        (r"\.attn\.c_attn\.", ".self_attn.qkv_proj."),
        (r"\.attn\.c_proj\.", ".self_attn.o_proj."),
        (r"\.ln_1\.", ".input_layernorm."),
        (r"\.ln_2\.", ".post_attention_layernorm."),
        (r"\.mlp\.w1\.", ".mlp.up_proj."),
        (r"\.mlp\.w2\.", ".mlp.gate_proj."),
        (r"\.mlp\.c_proj\.", ".mlp.down_proj."),
    )
    hf_model_type = "qwen2"  # it has custom code in its files
    heads_fill_hidden_size, grouped_queries = True, False
    attention_options = dict(qkv_bias=True)
    mlp_options = dict(width=attrgetter("mlp_width"))
    mlp_width = property(lambda self: self.intermediate_size // 2)

    def check(self) -> None:
        super().check()
        require_even(self.head_dim)  # the class rotates whole heads
        if self.mlp_width == 0:
            raise self.refused("intermediate_size", self.intermediate_size)

    def hf_config_fields(self) -> Mapping[str, Any]:
        """Fields with their defaults, with Qwen2's names."""
        dropped = {"no_bias", "use_cache_quantization", "partial_rotary_factor"}
        return {**self.model_dump(exclude=dropped, exclude_none=True), "intermediate_size": self.mlp_width}


class MiMo(Qwen2):
    """MiMo: Qwen2's layer; multi-token prediction layers follow and are not included."""

    class_prefixes = ("MiMo", "Qwen2")
    hf_model_type = "qwen2"
    task_heads = {**DECODER}


class Mellum(Decoder):
    """Mellum 2: Qwen3's attention and experts; windows and dense layers by lists; windowed layers have their own rotary
    embedding."""

    rope_by_kind = {
        FULL: {"rope_type": "default", "rope_theta": 500_000.0},
        SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    }
    sizes = dict(vocab=98304, hidden=2304, mlp=7168, layers=28, heads=32, kv_heads=4, head_dim=128, context=131072)
    defaults = dict(rope_parameters=rope_by_kind)
    attention_bias: StrictBool = False
    sliding_window: Window | None = 1024
    layer_types: LayerTypes | None = None
    mlp_layer_types: MlpLayerTypes | None = None
    moe_intermediate_size: PositiveInt = 896
    num_experts: PositiveInt = 64
    num_experts_per_tok: PositiveInt = 8
    attribute_map = {"num_local_experts": "num_experts"}
    layer_module_names, layer_tensor_names = {**QK_NORMS, **EXPERT_MODULES}, EXPERT_TENSORS
    qk_norm = QKNorm(0)

    def layers(self) -> list[Layer]:
        """Without lists no layer has a window, and all have experts."""
        windows, given = self.windows(lambda _: False, self.sliding_window), self.mlp_layer_types
        routed = [True] * self.num_hidden_layers if given is None else sparse_layers(given, self.num_hidden_layers)
        self.experts()
        return [Layer(window, experts=some) for window, some in zip(windows, routed, strict=True)]


class MiMoV2Flash(Decoder):
    """MiMo-V2-Flash: values have their own head size; windowed layers have twice the key/value heads, sinks and their
    own rotary embedding; experts in all layers but the first."""

    sizes = dict(vocab=152576, hidden=4096, mlp=16384, layers=48, heads=64, kv_heads=4, head_dim=192, context=131072)
    defaults = dict(rms_norm_eps=1e-5)
    v_head_dim: PositiveInt = 128
    attention_bias: StrictBool = False
    attention_value_scale: PositiveFloat | None = 0.707
    moe_intermediate_size: PositiveInt = 2048
    n_routed_experts: PositiveInt = 256
    num_experts_per_tok: PositiveInt = 8
    n_shared_experts: NonNegativeInt | None = None
    sliding_window: Window = 129
    sliding_window_size: PositiveInt | None = None
    attention_chunk_size: PositiveInt | None = None
    layer_types: LayerTypes | None = None
    mlp_layer_types: MlpLayerTypes | None = None
    hybrid_layer_pattern: Flags | None = None
    moe_layer_freq: Flags | None = None
    swa_num_attention_heads: PositiveInt | None = None
    swa_num_key_value_heads: PositiveInt | None = None
    swa_head_dim: PositiveInt | None = None
    swa_v_head_dim: PositiveInt | None = None
    add_swa_attention_sink_bias: StrictBool = True
    add_full_attention_sink_bias: StrictBool = False
    checkpoint_conversion_mapping = ((r"\.attention_sink_bias$", ".sinks"),)
    reference_only = """add_full_attention_sink_bias add_swa_attention_sink_bias attention_chunk_size
        hybrid_layer_pattern moe_layer_freq n_shared_experts swa_head_dim swa_num_attention_heads
        swa_num_key_value_heads swa_v_head_dim"""
    attribute_map = {"num_local_experts": "n_routed_experts"}
    ignored_fields = """n_group topk_group topk_method routed_scaling_factor scoring_func swa_rope_theta
        attention_projection_layout hybrid_block_size layernorm_epsilon"""
    layer_module_names = {**EXPERT_MODULES, **SINK_MODULES}
    layer_tensor_names = {**EXPERT_TENSORS, **SINK_TENSORS}
    partial_rotary, partial_rotary_factor = True, 0.334
    rope_by_kind = {
        FULL: {"rope_type": "default", "rope_theta": 5_000_000.0, "partial_rotary_factor": partial_rotary_factor},
        SLIDING: {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": partial_rotary_factor},
    }
    expert_count = "n_routed_experts"
    attention_out_bias = False
    head_names = "num_attention_heads by key/value heads of a layer"
    scales = property(lambda self: Scales(values=self.attention_value_scale))
    attention_options = dict(value_dim=attrgetter("v_head_dim"), scales=attrgetter("scales"))

    @property
    def window(self) -> int:
        """The window, including the token itself."""
        return self.sliding_window if self.sliding_window_size is None else self.sliding_window_size + 1

    def layers(self) -> list[Layer]:
        """Windows in all layers but the first and every sixth. Raises ConfigError if other fields contradict."""
        windows = self.windows(lambda number: number > 0 and (number + 1) % 6 != 0, self.window)
        routed = sparse_layers(self.mlp_layer_types, self.num_hidden_layers)
        built = {
            "hybrid_layer_pattern": [int(window is not None) for window in windows],
            "moe_layer_freq": [int(some) for some in routed],
            "swa_num_attention_heads": self.num_attention_heads,
            "swa_num_key_value_heads": 2 * self.num_key_value_heads,
            "swa_head_dim": self.head_dim,
            "swa_v_head_dim": self.v_head_dim,
            "n_shared_experts": 0,
            "attention_chunk_size": self.window - 1,
            "add_full_attention_sink_bias": False,
            "add_swa_attention_sink_bias": True,
        }
        self.require_if_given(built)
        heads = self.num_key_value_heads
        return [
            Layer(window, some, kv_heads=heads if window is None else 2 * heads)
            for window, some in zip(windows, routed, strict=True)
        ]

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        return super().attention(layer, sinks=layer.window is not None)
