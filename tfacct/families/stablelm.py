"""Decoders with LayerNorm or with norms around each sublayer: StableLM, Persimmon, PLaMo 3."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from tfacct.architecture.parts import QKNorm, Rotary
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import NORMS_AROUND, QK_LAYERNORMS, QK_NORMS, Decoder, Layer, PartialRotaryDecoder
from tfacct.families.family import SAME_AS_QUERY_HEADS, attention_modules, mlp_modules
from tfacct.families.fields import PositiveFloat, PositiveInt, StrictBool, StrictStr
from tfacct.families.layer_kinds import FULL, SLIDING, check_length
from tfacct.families.task_heads import CAUSAL_MODEL, LABELLING


class StableLm(PartialRotaryDecoder):
    """StableLM: Llama's layer with LayerNorm, a rotary embedding of part of each head, and optional biases on q, k and
    v; attention and MLP may read the same norm."""

    sizes = dict(vocab=50304, hidden=2560, mlp=6912, layers=32, heads=32, kv_heads=32, context=4096)
    defaults = dict(partial_rotary_factor=0.25)
    layer_norm_eps: PositiveFloat = 1e-5
    use_qkv_bias: StrictBool = False
    qk_layernorm: StrictBool = False
    use_parallel_residual: StrictBool = False
    class_prefixes = ("StableLm", "StableLM", "StableLMEpoch")  # older files have LM, the first ones Epoch
    task_heads = LABELLING
    dropouts = {"mlp": ("hidden_dropout", 0.0), "attention": ("attention_dropout", 0.0)}
    attribute_map = {"norm_eps": "layer_norm_eps", "rope_pct": "partial_rotary_factor"}
    layer_module_names = QK_LAYERNORMS
    heads_fill_hidden_size, norm_kind, eps_field = True, "layer", "layer_norm_eps"
    attention_bias, attention_out_bias = property(attrgetter("use_qkv_bias")), False
    qk_norm = QKNorm(0, kind="layer", per_head=True, shift=False)
    order = property(lambda self: "parallel" if self.use_parallel_residual else "pre")
    shares_norm = property(attrgetter("use_parallel_residual"))


class Persimmon(PartialRotaryDecoder):
    """Persimmon: LayerNorm, also of queries and keys; biases; an MLP of two matrices with squared ReLU; a rotary
    embedding of half of each head."""

    sizes = dict(vocab=262144, hidden=4096, mlp=16384, layers=36, heads=64, kv_heads=SAME_AS_QUERY_HEADS, context=16384)
    defaults = dict(hidden_act="relu2", partial_rotary_factor=0.5)
    qk_layernorm: StrictBool = True
    layer_norm_eps: PositiveFloat = 1e-5
    task_heads = LABELLING
    dropouts = {"mlp": ("hidden_dropout", 0.0), "attention": ("attention_dropout", 0.0)}
    constant_axes = frozenset({"G"})
    module_names = {"final_norm": "model.final_layernorm"}
    layer_module_names = {
        **attention_modules("self_attn", "query_key_value", "query_key_value", "query_key_value", "dense"),
        **QK_LAYERNORMS,
        **mlp_modules("mlp", up="dense_h_to_4h", down="dense_4h_to_h"),
    }
    heads_fill_hidden_size, grouped_queries = True, False
    norm_kind, eps_field, mlp_gated = "layer", "layer_norm_eps", False
    attention_bias = mlp_bias = True
    qk_norm = QKNorm(0, kind="layer")


class Plamo3(Decoder):
    """PLaMo 3: norms around attention and MLP, and windows in seven layers of eight, as in Gemma 3."""

    sizes = dict(vocab=32000, hidden=4096, mlp=13312, layers=32, heads=32, kv_heads=4, head_dim=128, context=2048)
    defaults = dict(tie_word_embeddings=True, rope_theta=1_000_000.0)
    window_size: PositiveInt = 2048
    sliding_window_pattern: PositiveInt = 8
    interleaved_sliding_window: list[PositiveInt | None] | None = None
    attention_bias: StrictBool = False
    hidden_activation: StrictStr = "swiglu"
    rope_local_theta: PositiveFloat = 10_000.0
    rope_scaling_factor: PositiveFloat = 1.0
    initial_context_length: PositiveInt | None = None
    class_prefixes = ("Plamo3", "Gemma3", "Gemma3Text")
    hf_model_type = "gemma3_text"
    task_heads = {"ForCausalLM": CAUSAL_MODEL}
    reference_only = "interleaved_sliding_window initial_context_length"
    required_values = {"attention_bias": False, "hidden_activation": "swiglu"}
    attribute_map = {"sliding_window": "window_size"}
    checkpoint_conversion_mapping = (
        (r"^model\.layers\.layers\.", "model.layers."),
        (r"\.mixer\.", ".self_attn."),
        (r"\.pre_mixer_norm\.", ".input_layernorm."),
        (r"\.post_mixer_norm\.", ".post_attention_layernorm."),
        (r"\.pre_mlp_norm\.", ".pre_feedforward_layernorm."),
        (r"\.post_mlp_norm\.", ".post_feedforward_layernorm."),
    )
    layer_module_names = {**QK_NORMS, **NORMS_AROUND}
    norms, qk_norm = "around", QKNorm(0, less_one=True)
    norm_weight_minus_one = True
    activation = "silu"  # hidden_activation names the whole gated MLP

    def layers(self) -> list[Layer]:
        count, every = self.num_hidden_layers, self.sliding_window_pattern
        windows = [self.window_size if (number + 1) % every else None for number in range(count)]
        given = self.interleaved_sliding_window
        if given is not None:
            check_length("interleaved_sliding_window", given, count)
            if given != windows:
                raise ConfigError("interleaved_sliding_window contradicts window_size and sliding_window_pattern")
        return [Layer(window) for window in windows]

    def layer_rope(self, layer: Layer) -> Rotary:
        """Rotary embedding of one layer; windowed layers have a different base and no scaling. Raises ConfigError."""
        if layer.window is not None:
            return Rotary(self.rope_local_theta)
        base = self.rope_theta or 1_000_000.0
        if self.rope_scaling_factor == 1:
            return Rotary(base)
        if self.initial_context_length is None:
            raise ConfigError("rope_scaling_factor needs initial_context_length")
        scaling = {
            "rope_type": "yarn",
            "factor": self.rope_scaling_factor,
            "original_max_position_embeddings": self.initial_context_length,
            "truncate": False,
        }
        return Rotary(base, scaling)

    def hf_config_fields(self) -> Mapping[str, Any]:
        """Sizes with their defaults, and windows, with Gemma 3's names."""
        names = """vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads
            head_dim max_position_embeddings tie_word_embeddings rms_norm_eps"""
        return {
            **self.model_dump(include=set(names.split())),
            "sliding_window": self.window_size,
            "layer_types": [FULL if layer.window is None else SLIDING for layer in self.layers()],
            "query_pre_attn_scalar": self.head_dim,
            "hidden_activation": self.activation,
        }
