"""Llama 4 and Meta's models after it."""

from dataclasses import replace
from operator import attrgetter
from typing import Any

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Experts, Gate, LerpResidual, Norm, QKNorm, ReadNorm, Scales, Temperature
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.spelling import setting
from tfacct.families.decoder import (
    EXPERT_MODULES,
    EXPERT_TENSORS,
    NORMS_AROUND,
    AnyAttention,
    Decoder,
    Layer,
    Window,
    expert_modules,
    expert_tensors,
)
from tfacct.families.family import mlp_modules
from tfacct.families.fields import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, StrictBool, StrictStr
from tfacct.families.layer_kinds import (
    FULL,
    Flags,
    LayerTypes,
    MlpLayerTypes,
    check_length,
    layer_kinds,
    moe_layers,
    rope_layers,
    sparse_layers,
    with_all_experts,
)
from tfacct.families.task_heads import WITH_IMAGES, inside_composite

CHUNKED = "chunked_attention"


class Llama4(Decoder):
    """Llama 4's language model: attention in chunks, layers without rotary embedding, experts with a shared expert.
    intermediate_size is the width of an expert, intermediate_size_mlp that of a dense layer."""

    sizes = dict(vocab=202048, hidden=5120, mlp=8192, layers=48, heads=40, kv_heads=8, head_dim=128, context=131072)
    defaults = dict(rms_norm_eps=1e-5, rope_theta=500_000.0)
    intermediate_size_mlp: PositiveInt = 16384
    attention_bias: StrictBool = False
    num_local_experts: NonNegativeInt = 16
    num_experts_per_tok: NonNegativeInt = 1
    moe_layers: list[NonNegativeInt] | None = None
    interleave_moe_layer_step: NonNegativeInt = 1
    use_qk_norm: StrictBool = True
    no_rope_layers: Flags | None = None
    no_rope_layer_interval: PositiveInt = 4
    attention_chunk_size: Window | None = 8192
    layer_types: LayerTypes | None = None
    attn_temperature_tuning: StrictBool | NonNegativeInt = True  # the first files have 4, which means on
    floor_scale: PositiveInt = 8192
    attn_scale: PositiveFloat = 0.1
    class_prefixes = ("Llama4", "Llama4Text")
    reference_only = "attn_temperature_tuning floor_scale no_rope_layer_interval use_qk_norm"
    ignored_fields = "for_llm_compressor"
    task_heads = WITH_IMAGES
    transposed_weights = ("blocks.*.mlp.experts.",)
    layer_module_names = {
        **mlp_modules("feed_forward"),
        **expert_modules("feed_forward", "router"),
        **mlp_modules("feed_forward.shared_expert", at="mlp.shared"),
    }
    layer_tensor_names = expert_tensors("feed_forward")
    hf_extra_note = "it runs every token through all experts, and scales their inputs by the router scores"
    rope_pairs = "neighbours"
    expert_count, expert_width = "num_local_experts", "intermediate_size"
    mlp_options = dict(width=attrgetter("intermediate_size_mlp"))

    def hf_products(self) -> Transformer:
        """The class runs every token through all experts."""
        return with_all_experts(self.transformer())

    def layers(self) -> list[Layer]:
        """Chunks in layers with rotary embedding, if layer_types is absent. Raises ConfigError."""
        layers, chunk = self.num_hidden_layers, self.attention_chunk_size
        rotary = rope_layers(self.no_rope_layers or None, layers, self.no_rope_layer_interval)
        routed = self.layers_with_experts()
        if any(routed):
            self.experts()
        kinds = layer_kinds(self.layer_types, layers, lambda n: CHUNKED if rotary[n] else FULL, (FULL, CHUNKED))
        if CHUNKED in kinds and not chunk:
            raise ConfigError(
                f"layer {kinds.index(CHUNKED)} has {CHUNKED}, but attention_chunk_size is null",
                f"give attention_chunk_size, or {setting('layer_types', FULL)} for full attention in every layer",
            )
        per_layer = zip(kinds, routed, rotary, strict=True)
        return [Layer(chunk if kind == CHUNKED else None, some, rotary=on) for kind, some, on in per_layer]

    def layers_with_experts(self) -> list[bool]:
        """By moe_layers, or every interleave_moe_layer_step-th. Raises ConfigError."""
        step, layers = self.interleave_moe_layer_step, self.num_hidden_layers
        if self.moe_layers is not None:
            return [number in self.moe_layers for number in range(layers)]
        if step == 0:
            raise self.refused("interleave_moe_layer_step", 0)
        return moe_layers(layers, step, None)

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        """Norms of queries and keys with rotary embedding; without it, queries grow with their position."""
        if layer.rotary:
            norm = QKNorm(self.rms_norm_eps, late=True, learned=False) if self.use_qk_norm else None
            overrides = {"qk_norm": norm}
        elif self.attn_temperature_tuning:
            overrides = {"scales": Scales(Temperature(self.attn_scale, float(self.floor_scale), 1))}
        return super().attention(layer, mask="causal" if layer.window is None else "chunks", **overrides)

    def experts(self, **overrides: Any) -> Experts:
        """With a shared expert of the same width. Raises ConfigError."""
        for name in ("num_local_experts", "num_experts_per_tok"):
            if getattr(self, name) == 0:
                raise ConfigError(f"{name} = 0, but there are layers with experts")
        return super().experts(shared_alike=True)


class MuseGlimmer(Decoder):
    """Muse Glimmer's language model: gated attention, norms around every sublayer; three layers of four have a window
    and a rotary embedding, the fourth has neither."""

    sizes = dict(vocab=202_048, hidden=6656, mlp=19968, layers=52, heads=32, kv_heads=2, head_dim=128, context=131_072)
    defaults = dict(rms_norm_eps=1e-5)
    hidden_activation: StrictStr = "silu"
    post_norm_eps: PositiveFloat = 1e-8
    attention_bias: StrictBool = False
    sliding_window: Window | None = 2048
    layer_types: LayerTypes | None = None
    layer_rope_theta: list[NonNegativeFloat] | None = None
    final_logit_softcapping: PositiveFloat = 20.0
    qk_scale_factor: PositiveFloat = 3.87
    output_multiplier: PositiveFloat = 0.19611613513818404
    class_prefixes = ("MuseGlimmer", "MuseGlimmerText")
    reference_only = "layer_rope_theta"
    task_heads = inside_composite("MuseGlimmerForConditionalGeneration")
    layer_module_names = {"attn.gate_proj": "self_attn.gate_proj", **NORMS_AROUND}
    norms = "around"
    qk_norm = QKNorm(0, learned=False)
    attention_scale = property(lambda self: self.qk_scale_factor * self.head_dim**-0.5)
    attention_options = dict(scale=attrgetter("attention_scale"), gate=Gate(bias=False))
    head_options = dict(logit_scale=attrgetter("output_multiplier"), softcap=attrgetter("final_logit_softcapping"))
    activation = property(attrgetter("hidden_activation"))
    norm_weight_minus_one = True

    def post_norm(self) -> Norm:
        return replace(self.norm(), eps=self.post_norm_eps)

    def has_window(self, number: int) -> bool:
        """True for layers with the window, if layer_types is absent: all but every fourth, from the last."""
        return (self.num_hidden_layers - 1 - number) % 4 != 0

    def has_rotary(self) -> list[bool]:
        """True for a layer with rotary embedding; without layer_rope_theta, for layers with the window. Raises
        ConfigError."""
        given, layers = self.layer_rope_theta, self.num_hidden_layers
        if given is None:
            return [self.has_window(number) for number in range(layers)]
        check_length("layer_rope_theta", given, layers)
        return [theta > 0 for theta in given]

    def layers(self) -> list[Layer]:
        both = zip(self.windows(self.has_window, self.sliding_window), self.has_rotary(), strict=True)
        return [Layer(window, rotary=rotary) for window, rotary in both]

    def embeddings_and_head(self) -> dict[str, Any]:
        """Embeddings with a norm after them."""
        plain = replace(self.norm(), less_one=False)
        return {**super().embeddings_and_head(), "embed_norm": replace(plain, learned="none"), "final_norm": plain}


class MuseSpark(MuseGlimmer):
    """Muse Spark's language model: Muse Glimmer's, with experts with narrower inputs, and learned weights of a
    sublayer's output and of the residual stream."""

    sizes = dict(hidden=8192, mlp=16384, layers=62, heads=128, kv_heads=16, head_dim=64, context=1_048_576)
    defaults = dict(rope_theta=500_000.0, qk_scale_factor=5.4730064863875, output_multiplier=0.1767766952966369)
    hidden_activation: StrictStr | None = None  # type: ignore[assignment]
    moe_intermediate_size: PositiveInt = 4096
    num_local_experts: PositiveInt = 256
    num_experts_per_tok: PositiveInt = 8
    routed_scaling_factor: PositiveFloat = 1.0
    moe_hidden_size: PositiveInt = 4096
    mlp_layer_types: MlpLayerTypes | None = None
    residual_gate_temperature: PositiveFloat = 0.3
    class_prefixes = ("MuseSpark", "MuseSparkText")
    required_values = {"hidden_activation": None, "tie_word_embeddings": False}  # the class has its own head
    attribute_map = {"num_experts": "num_local_experts"}
    task_heads = inside_composite("MuseSparkForConditionalGeneration", "MuseSparkTextModel")
    layer_module_names = {
        **EXPERT_MODULES,
        "mlp.latent_down": "mlp.pre_expert_proj",
        "mlp.latent_up": "mlp.post_expert_proj",
        "mlp.latent_norm": "mlp.pre_expert_norm",
        "mlp.result_norm": "mlp.experts.post_expert_norm",
    }
    layer_tensor_names = {
        **EXPERT_TENSORS,
        "attn_add.gate.weight": "post_attention_residual_gate.gate",
        "mlp_add.gate.weight": "post_feedforward_residual_gate.gate",
    }
    expert_count = "num_local_experts"
    activation = property(attrgetter("hidden_act"))
    attention_options = dict(read_norm=attrgetter("read_norm"))
    read_norm = property(lambda self: ReadNorm(self.rms_norm_eps))

    def layers(self) -> list[Layer]:
        windows, layers = self.windows(self.has_window, self.sliding_window), self.num_hidden_layers
        routed = [True] * layers if self.mlp_layer_types is None else sparse_layers(self.mlp_layer_types, layers)
        per_layer = zip(windows, routed, self.has_rotary(), strict=True)
        return [Layer(window, some, rotary=rotary) for window, some, rotary in per_layer]

    def experts(self, **overrides: Any) -> Experts:
        norms = (self.rms_norm_eps, self.post_norm_eps)
        return super().experts(latent=self.moe_hidden_size, latent_norms=norms)

    def block(self, layer: Layer) -> Block:
        bare = replace(self.post_norm(), less_one=False, learned="none")
        after = replace(self.post_norm(), scales_first=True)
        add = LerpResidual(hidden=self.hidden_size, temperature=self.residual_gate_temperature)
        norm = self.norm()
        return Block((Sublayer(self.attention(layer), norm, bare, add), Sublayer(self.mlp(layer), norm, after, add)))
