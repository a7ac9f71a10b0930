"""IBM's Granite models, and HyperCLOVA X: constants scale embeddings, attention scores, residuals and logits."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

from tfacct.architecture.parts import Experts, FeedForward
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import SINK_MODULES, SINK_TENSORS, Layer, Window, expert_modules, expert_tensors
from tfacct.families.family import mlp_modules
from tfacct.families.fields import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, StrictBool
from tfacct.families.layer_kinds import FULL, LayerTypes, check_length, validated_layer_types
from tfacct.families.llama import Llama
from tfacct.families.mamba import Mamba2Hybrid
from tfacct.families.task_heads import DECODER

SHARED = dict(up="input_linear", down="output_linear", gate="input_linear")


class Granite(Llama):
    """Granite 3 and 4 (dense): Llama's layer; constants scale embeddings, attention scores, residuals and logits."""

    sizes = dict(vocab=32000, hidden=4096, layers=32, heads=32)
    embedding_multiplier: PositiveFloat = 1.0
    logits_scaling: PositiveFloat = 1.0
    residual_multiplier: PositiveFloat = 1.0
    attention_multiplier: PositiveFloat | None = 1.0
    checkpoint_conversion_mapping = (
        (r"\.input_linear\.weight$", ".experts.gate_up_proj"),
        (r"\.output_linear\.weight$", ".experts.down_proj"),
        (r"\.router\.layer\.", ".router."),
    )
    task_heads = DECODER
    residual_factor = property(attrgetter("residual_multiplier"))
    attention_options = dict(scale=attrgetter("attention_multiplier"))
    embedding_options = dict(scaled=True, factor=attrgetter("embedding_multiplier"))
    head_options = dict(logit_scale=attrgetter("logit_scale"))

    logit_scale = property(lambda self: 1 / self.logits_scaling)


class HyperCLOVAX(Granite):
    """HyperCLOVA X: Granite's layer, also with norms after attention and MLP. logits_scaling multiplies logits."""

    defaults = dict(attention_multiplier=None)
    use_post_norm: StrictBool = True
    layer_module_names = {"attn_post_norm": "post_norm1", "mlp_post_norm": "post_norm2"}
    norms = property(lambda self: "around" if self.use_post_norm else "before")
    logit_scale = property(attrgetter("logits_scaling"))


class GraniteMoe(Granite):
    """Granite 3 with experts in every layer."""

    num_local_experts: PositiveInt = 8
    num_experts_per_tok: PositiveInt = 2
    required_values = {"mlp_bias": False}
    attribute_map = {"num_experts": "num_local_experts"}
    layer_module_names = expert_modules("block_sparse_moe", "router")
    layer_tensor_names = expert_tensors("block_sparse_moe")
    all_layers_have_experts, expert_count, expert_width = True, "num_local_experts", "intermediate_size"


class GraniteMoeShared(GraniteMoe):
    """Granite with experts and a shared expert with its own width."""

    shared_intermediate_size: NonNegativeInt = 0
    layer_module_names = mlp_modules("shared_mlp", at="mlp.shared", **SHARED)
    shared_width = property(lambda self: self.shared_intermediate_size or None)
    experts_options = dict(shared=attrgetter("shared_width"))


class GraniteWithWindows(Granite):
    """Windows in three layers of four, sinks, and rotary embedding per layer."""

    sliding_window: Window | None = 128
    layer_types: LayerTypes | None = None
    layer_rope_theta: list[NonNegativeFloat] | None = None
    layer_module_names, layer_tensor_names = SINK_MODULES, SINK_TENSORS
    attention_options = dict(sinks=True)

    def rope_thetas(self) -> Sequence[float | None]:
        """RoPE base of each layer: 0 without rotary embedding, None for the model's base. Raises ConfigError."""
        layers, given = self.num_hidden_layers, self.layer_rope_theta
        if given is None:
            return [None] * layers
        hint = "layer_rope_theta=null gives all layers the same RoPE base"
        check_length("layer_rope_theta", given, layers, hint, longer=True)
        thetas: list[float] = given[:layers]
        return thetas

    def layers(self) -> list[Layer]:
        windows = self.windows(lambda number: number % 4 != 0, self.sliding_window)
        both = zip(windows, self.rope_thetas(), strict=True)
        return [Layer(window, rotary=theta != 0, rope_theta=theta) for window, theta in both]


class GraniteSWA(GraniteWithWindows):
    """Granite with windows in three layers of four; each query head has a sink, and each layer may have its own rotary
    embedding, or none."""

    sizes = dict(vocab=100352, hidden=2560, mlp=8192, layers=24, heads=20, kv_heads=4, context=8192)
    defaults = dict(tie_word_embeddings=True, rms_norm_eps=1e-5)
    null_means = {"num_key_value_heads": "num_attention_heads"}


class GraniteMoeSWA(GraniteWithWindows, GraniteMoeShared):
    """Granite with the experts of GraniteMoeShared and the attention of GraniteSWA."""


class GraniteMoeHybrid(Granite, Mamba2Hybrid):
    """Granite 4.0: Mamba-2 in most layers, attention in a few; experts with a shared expert, or only one MLP."""

    num_local_experts: NonNegativeInt = 8
    num_experts_per_tok: NonNegativeInt = 2
    shared_intermediate_size: PositiveInt = 1024
    position_embedding_type: Literal["rope", "nope"] | None = None
    layer_types: LayerTypes | None = None
    required_values = {"mlp_bias": False}
    attribute_map = {"num_experts": "num_local_experts", "layers_block_type": "layer_types"}
    ignored_fields = "init_method normalization_function add_bias_linear"
    layer_module_names = {
        **expert_modules("block_sparse_moe", "router"),
        **mlp_modules("shared_mlp", **SHARED),
        **mlp_modules("shared_mlp", at="mlp.shared", **SHARED),
    }
    layer_tensor_names = expert_tensors("block_sparse_moe")
    expert_count, expert_width = "num_local_experts", "intermediate_size"

    def layers(self) -> list[Layer]:
        """Layers by layer_types."""
        layers, older = self.num_hidden_layers, {"attention": FULL, "hybrid": FULL}
        kinds = [""] * layers
        if self.layer_types is not None:
            known = ("linear_attention", FULL, "mamba", *older)
            kinds = validated_layer_types(self.layer_types, layers, known)
        return [
            Layer(kind=FULL if older.get(kind, kind) == FULL else "", rotary=self.position_embedding_type == "rope")
            for kind in kinds
        ]

    def mlp(self, layer: Layer) -> FeedForward | Experts:
        """Experts with a shared expert, or one MLP of the same width. Raises ConfigError."""
        shared = self.shared_intermediate_size
        if not self.num_local_experts:
            return self.dense_mlp(width=shared)
        experts = self.experts(shared=shared)
        if not self.num_experts_per_tok:
            raise ConfigError("num_experts_per_tok must be at least 1, not 0")
        return experts
