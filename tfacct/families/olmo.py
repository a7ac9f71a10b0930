"""Ai2's OLMo models."""

from operator import attrgetter
from typing import Any

from pydantic import Field

from tfacct.architecture.parts import DeltaNet, QKNorm, Rotary
from tfacct.families.decoder import EXPERT_MODULES, EXPERT_TENSORS, NORMS_AFTER, QK_NORMS, Decoder, Layer, Window
from tfacct.families.family import SAME_AS_QUERY_HEADS
from tfacct.families.fields import PositiveFloat, PositiveInt, StrictBool
from tfacct.families.hybrid import LINEAR, DeltaDecoder, delta_modules, delta_tensors
from tfacct.families.layer_kinds import FULL, LayerTypes, rope_of_kind
from tfacct.families.task_heads import CLASSIFYING, DECODER


class Olmo(Decoder):
    """OLMo 1: Llama's layer, with LayerNorms that have no parameters."""

    sizes = dict(vocab=50304, hidden=4096, mlp=11008, layers=32, heads=32, kv_heads=SAME_AS_QUERY_HEADS, context=2048)
    attention_bias: StrictBool = False
    clip_qkv: PositiveFloat | None = None
    class_prefixes = ("Olmo", "OLMo")  # some files write OLMo
    task_heads = CLASSIFYING
    attention_options = dict(clip=attrgetter("clip_qkv"))
    norm_kind, norm_learned, eps_field, norm_eps = "layer", "none", "norm_eps", 1e-5  # rms_norm_eps is not read


class Olmoe(Olmo):
    """OLMoE: experts in every layer, RMSNorms, and norms over all queries and all keys together."""

    sizes = dict(hidden=2048, mlp=2048, layers=16, heads=16, context=4096)
    defaults = dict(rms_norm_eps=1e-5)
    num_experts: PositiveInt = 64
    num_experts_per_tok: PositiveInt = 8
    attribute_map = {"num_local_experts": "num_experts"}
    task_heads = DECODER
    layer_module_names, layer_tensor_names = {**EXPERT_MODULES, **QK_NORMS}, EXPERT_TENSORS
    all_layers_have_experts, expert_width = True, "intermediate_size"
    heads_fill_hidden_size = True
    qk_norm = QKNorm(0, together=True)
    norm_kind, norm_learned, eps_field = "rms", "both", "rms_norm_eps"  # type: ignore[assignment]


class Olmo2(Decoder):
    """OLMo 2: norms after attention and MLP instead of before; norms over all queries and all keys together."""

    sizes = dict(mlp=11008, kv_heads=SAME_AS_QUERY_HEADS, context=2048)
    defaults = dict(rms_norm_eps=1e-5)
    attention_bias: StrictBool = False
    nested_defaults = dict(vocab_size=50304, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32)
    task_heads = CLASSIFYING
    layer_module_names = {**QK_NORMS, **NORMS_AFTER}
    norms = "after"
    qk_norm = QKNorm(0, together=True)


class Olmo3(Olmo2):
    """OLMo 3: OLMo 2's layer; three layers of four have a window and a different rotary embedding."""

    sliding_window: Window | None = 4096
    layer_types: LayerTypes | None = None

    def layers(self) -> list[Layer]:
        seen = self.windows(lambda number: (number + 1) % 4 != 0, self.sliding_window)
        return [Layer(window) for window in seen]

    def layer_rope(self, layer: Layer) -> Rotary:
        """Rotary embedding of one layer; rope_theta and rope_scaling apply only to layers without a window. Raises
        ConfigError."""
        theta, scaling = (self.rope_theta, self.rope_scaling) if layer.window is None else (None, None)
        given = rope_of_kind(self.rope_parameters, layer.window) or scaling or {}
        return Rotary(given.get("rope_theta") or theta or 500_000.0, given)


class FlexOlmo(Olmo2):
    """FlexOlmo: OLMo 2's attention and norms, and OLMoE's experts in every layer."""

    sizes = dict(vocab=100352, hidden=4096, layers=32, heads=32, context=4096)
    defaults = dict(rms_norm_eps=1e-6, rope_theta=500_000.0)
    num_experts: PositiveInt = 7
    num_experts_per_tok: PositiveInt = 5
    attribute_map = {"num_local_experts": "num_experts"}
    task_heads = DECODER
    layer_module_names, layer_tensor_names = EXPERT_MODULES, EXPERT_TENSORS
    all_layers_have_experts, expert_width = True, "intermediate_size"


class OlmoHybrid(DeltaDecoder, Olmo2):
    """OLMo Hybrid: gated DeltaNet in three layers of four, with norms before; OLMo 2's layer in the fourth."""

    sizes = dict(vocab=100352, hidden=3840, layers=32, heads=30, context=65536)
    defaults = dict(rms_norm_eps=1e-6)
    linear_num_key_heads: PositiveInt = SAME_AS_QUERY_HEADS
    linear_num_value_heads: PositiveInt = SAME_AS_QUERY_HEADS
    linear_key_head_dim: PositiveInt = Field(
        default_factory=lambda fields: 3 * fields["hidden_size"] // 4 // fields["linear_num_key_heads"]
    )
    linear_value_head_dim: PositiveInt = Field(default_factory=lambda fields: 2 * fields["linear_key_head_dim"])
    linear_conv_kernel_dim: PositiveInt = 4
    linear_allow_neg_eigval: StrictBool = True
    reference_only = "linear_allow_neg_eigval"
    ignored_fields = "linear_a_log_min linear_a_log_max linear_dt_min linear_dt_max linear_dt_init_floor"
    checkpoint_conversion_mapping = (
        (r"\.attention_layer_norm\.", ".input_layernorm."),
        (r"\.feedforward_layer_norm\.", ".post_attention_layernorm."),
    )
    task_heads = DECODER
    layer_module_names = delta_modules(
        "linear_attn",
        **{name: name for name in ("q_proj", "k_proj", "v_proj")},
        gate_proj="g_proj",
        rate_proj="b_proj",
        decay_proj="a_proj",
        out_norm="o_norm",
        out_proj="o_proj",
    )
    layer_tensor_names = delta_tensors("linear_attn")
    heads_fill_hidden_size = True

    def hf_unsupported(self) -> str | None:
        both = {layer.kind for layer in self.layers()} == {FULL, LINEAR}
        return None if both else "it needs layers of both kinds"

    def layers(self) -> list[Layer]:
        """Layers; a model with fewer than four has attention in the last one."""
        layers = self.num_hidden_layers
        return [Layer(kind=kind) for kind in self.kinds(lambda n: n % 4 == 3 or (layers < 4 and n == layers - 1))]

    def layer_rope(self, layer: Layer) -> Rotary | None:
        """None if rope_parameters.rope_theta is null."""
        return None if (self.rope_parameters or {}).get("rope_theta", 0) is None else super().layer_rope(layer)

    def delta(self, **overrides: Any) -> DeltaNet:
        """Rates are up to 2 if negative eigenvalues are allowed."""
        return super().delta(doubled=self.linear_allow_neg_eigval, eps=1e-5)
