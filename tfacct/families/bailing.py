"""Ling and Ring (Bailing)."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from tfacct.architecture.parts import DeltaNet, Gate, LightningAttention, QKNorm
from tfacct.families.decoder import QK_NORMS, Decoder, Layer, SharedExperts
from tfacct.families.fields import Fraction, NonNegativeInt, PositiveInt, StrictBool, divide_exactly
from tfacct.families.glm import Glm4Moe
from tfacct.families.hybrid import KimiDeltaDecoder, KimiExperts, delta_modules
from tfacct.families.layer_kinds import MlpLayerTypes
from tfacct.families.mla import MlaDecoder
from tfacct.families.task_heads import DECODER

FLA_CHUNK = 64
"""Tokens of a chunk in flash-linear-attention's kernels."""
LIGHTNING = "lightning"


class BailingMoeV2(Glm4Moe):
    """Ling and Ring 2.0: GLM-4.5's layer; dense layers first, then experts and a shared expert. `in_blocks` is a field
    of tfacct, not of published configs."""

    sizes = dict(vocab=157184, hidden=2048, mlp=5120, layers=20, heads=16, kv_heads=4, head_dim=128, context=32768)
    defaults = dict(
        partial_rotary_factor=1.0,
        use_qk_norm=True,
        rms_norm_eps=1e-6,
        rope_theta=600_000.0,
        moe_intermediate_size=512,
        n_routed_experts=256,
    )
    moe_shared_expert_intermediate_size: PositiveInt | None = None
    use_bias: StrictBool = False
    in_blocks: StrictBool | None = None
    class_prefixes = ("BailingMoeV2", "Glm4Moe")
    hf_model_type = "glm4_moe"
    reference_only = "moe_shared_expert_intermediate_size"
    attribute_map = {
        "num_experts": "n_routed_experts",
        "num_shared_experts": "n_shared_experts",
        "use_qkv_bias": "attention_bias",
    }
    ignored_fields = "use_rmsnorm score_function router_dtype moe_router_enable_expert_bias"
    mask = property(lambda self: "blocks" if self.in_blocks else "causal")
    attention_options = dict(mask=attrgetter("mask"))

    def check(self) -> None:
        super().check()
        self.require_if_given({"moe_shared_expert_intermediate_size": self.moe_intermediate_size})
        self.require({"use_bias": False})

    def hf_config_fields(self) -> Mapping[str, Any]:
        """The fields that GLM-4.5 has."""
        dropped = {"moe_shared_expert_intermediate_size", "use_bias", "in_blocks"}
        return self.model_dump(exclude=dropped, exclude_none=True)


class LightningHybrid(SharedExperts, Decoder):
    """Lightning attention in most layers. The fields are those of the code in the model's repository."""

    sizes = dict(vocab=157184, hidden=2048, mlp=5120, layers=20, heads=16, kv_heads=4, head_dim=128, context=32768)
    defaults = dict(rope_theta=600_000.0, moe_intermediate_size=512)
    partial_rotary_factor: Fraction = 0.5
    use_qk_norm: StrictBool = True
    use_qkv_bias: StrictBool = False
    use_bias: StrictBool = False
    layer_group_size: PositiveInt = 5
    group_norm_size: PositiveInt = 4
    linear_silu: StrictBool = False
    num_experts: PositiveInt = 256
    num_shared_experts: NonNegativeInt = 1
    moe_shared_expert_intermediate_size: PositiveInt | None = None
    first_k_dense_replace: NonNegativeInt = 1
    reference_only = "-partial_rotary_factor group_norm_size linear_silu moe_shared_expert_intermediate_size"
    ignored_fields = """score_function scoring_func seq_aux topk_method router_dtype moe_router_enable_expert_bias
        moe_router_enable_shared_expert moe_router_enable_routed_scaling use_rmsnorm embedding_dropout output_dropout
        norm_head router_type rope_traditional"""
    expert_count, shared_expert_count = "num_experts", "num_shared_experts"

    def hf_unsupported(self) -> str | None:
        if any(layer.kind == LIGHTNING for layer in self.layers()):
            return "it has no lightning attention, so it matches only if every layer has softmax attention"
        return "its attention output projection has no bias" if self.use_bias else super().hf_unsupported()

    def hf_config_fields(self) -> Mapping[str, Any]:
        """Fields under the names of the class."""
        fields = self.model_dump(exclude_none=True)
        counts = {"n_routed_experts": self.num_experts, "n_shared_experts": self.num_shared_experts}
        return {**fields, **counts, "attention_bias": self.use_qkv_bias}

    def check(self) -> None:
        super().check()
        if self.num_shared_experts:
            self.require_if_given({"moe_shared_expert_intermediate_size": self.moe_intermediate_size})

    def layers(self) -> list[Layer]:
        """Softmax attention in every layer_group_size-th layer, and in layers after the last full group."""
        layers, size = self.num_hidden_layers, self.layer_group_size
        softmax = [(number + 1) % size == 0 or number >= layers // size * size for number in range(layers)]
        both = zip(softmax, self.moe_layers(), strict=True)
        return [Layer(kind="" if full else LIGHTNING, experts=some) for full, some in both]

    def lightning(self) -> LightningAttention:
        """Lightning attention. Raises ConfigError."""
        width = self.num_attention_heads * self.head_dim
        divide_exactly(width, self.group_norm_size, "heads · head_dim by group_norm_size")
        self.require({"linear_silu": False})
        return LightningAttention(
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            head_dim=self.head_dim,
            activation=None,
            eps=self.rms_norm_eps,
            chunk=FLA_CHUNK,
            qk_norm=self.use_qk_norm,
            rotary=self.rope()._replace(pairs="halves"),
            rope_dim=self.rotary_size(),
            groups=self.group_norm_size,
            bias=self.use_qkv_bias,
            out_bias=self.use_bias,
            simple=True,
        )

    def attention(self, layer: Layer, **overrides: Any) -> Any:
        return self.lightning() if layer.kind == LIGHTNING else super().attention(layer, **overrides)


class BailingMoeLinearV2(LightningHybrid):
    """Ring and Ling 2.0 linear: lightning attention in four layers of five, Ling 2.0's attention in the fifth."""

    class_prefixes = ("BailingMoeLinearV2", "Glm4Moe")
    hf_model_type = "glm4_moe"
    layer_module_names = QK_NORMS
    attention_bias, attention_out_bias = property(attrgetter("use_qkv_bias")), property(attrgetter("use_bias"))
    partial_rotary, qk_norm = True, QKNorm(0)


class BailingMoeV2_5(LightningHybrid, MlaDecoder):
    """Ling and Ring 2.5: lightning attention in most layers, latent attention in every layer_group_size-th."""

    defaults = dict(q_lora_rank=None)
    head_dim: PositiveInt = 128
    class_prefixes = ("BailingMoeV2_5", "DeepseekV3")
    hf_model_type = "deepseek_v3"
    required_values = {"attention_bias": False}
    reference_only = "-head_dim"
    null_means = {}
    attention_options = dict(bias=attrgetter("use_qkv_bias"))

    def hf_config_fields(self) -> Mapping[str, Any]:
        """The class has no shared key/value heads, and head_dim is the size of their rotary part."""
        fields = {name: value for name, value in super().hf_config_fields().items() if name != "head_dim"}
        heads = {"num_key_value_heads": self.num_attention_heads, "q_lora_rank": self.q_lora_rank}
        return {**fields, **heads, "partial_rotary_factor": 1.0, "head_dim": self.qk_rope_head_dim}

    def attention(self, layer: Layer, **overrides: Any) -> Any:
        """Heads do not share keys, for any num_key_value_heads."""
        unshared = self.model_copy(update={"num_key_value_heads": self.num_attention_heads})
        return LightningHybrid.attention(unshared, layer)


class BailingHybrid(KimiExperts, KimiDeltaDecoder, MlaDecoder):
    """Ling 3.0: DeltaNet with per-channel decays in five layers of six, gated latent attention in the sixth;
    dense layers first, then experts and a shared expert."""

    sizes = dict(vocab=157184, hidden=2560, mlp=6144, layers=42, heads=32, kv_heads=32, context=262144)
    defaults = dict(rope_theta=6_000_000.0, q_lora_rank=None, moe_intermediate_size=768, num_local_experts=512)
    head_dim: PositiveInt = 128
    first_k_dense_replace: NonNegativeInt = 2
    mlp_layer_types: MlpLayerTypes | None = None
    layer_group_size: PositiveInt = 6
    short_conv_kernel_size: PositiveInt = 4
    kda_safe_gate: StrictBool = True
    kda_lower_bound: float = -5.0
    linear_num_heads: PositiveInt | None = None
    linear_head_dim: PositiveInt | None = None
    linear_conv_kernel_dim: PositiveInt | None = None
    class_prefixes = ("BailingHybrid", "BailingMoeV3")
    required_values = {"q_lora_rank": None, "tie_word_embeddings": False, "attention_bias": False}
    reference_only = "-head_dim -q_lora_rank -attention_bias kda_safe_gate"
    checkpoint_conversion_mapping = (
        (r"^model\.word_embeddings\.", "model.embed_tokens."),
        (r"\.attention\.", ".self_attn."),
        KimiDeltaDecoder.published_forget_gate,
        (r"\.self_attn\.dense\.", ".self_attn.o_proj."),
    )
    task_heads = {name: DECODER[name] for name in ("ForCausalLM", "Model")}
    attribute_map = {"n_routed_experts": "num_local_experts"}
    ignored_fields = "moe_renormalize num_expert_group"
    layer_module_names = {
        "attn.gate_proj": "self_attn.g_proj",
        **delta_modules("self_attn", "", gate_proj="g_proj", decay_proj="forget_gate.f_proj"),
    }
    attention_options = dict(gate=Gate("heads"))

    def layers(self) -> list[Layer]:
        kinds = self.kinds(lambda number: (number + 1) % self.layer_group_size == 0)
        return [Layer(kind=kind, experts=some) for kind, some in zip(kinds, self.moe_layers(), strict=True)]

    def delta_size(self, field: str) -> int:
        default = {
            "linear_num_heads": self.num_attention_heads,
            "linear_head_dim": self.head_dim,
            "linear_conv_kernel_dim": self.short_conv_kernel_size,
        }
        return getattr(self, field) or default[field]

    def delta(self, **overrides: Any) -> DeltaNet:
        return super().delta(floor=self.kda_lower_bound if self.kda_safe_gate else None)
