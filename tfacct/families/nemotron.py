"""Nvidia's Nemotron models."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Mamba2 as Mamba2Mixer
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.families.decoder import Layer, PartialRotaryDecoder, expert_modules
from tfacct.families.family import ABSENT, attention_modules, mlp_modules
from tfacct.families.fields import (
    Fraction,
    JsonDict,
    LayerCount,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    divide_exactly,
    is_size,
    require_even,
)
from tfacct.families.hybrid import HybridDecoder
from tfacct.families.layer_kinds import FULL, LayerTypes, check_length
from tfacct.families.llama import Llama
from tfacct.families.mamba import MAMBA, Mamba2Family, mamba2_modules, mamba2_tensors
from tfacct.families.task_heads import CAUSAL_MODEL, LABELLING


class Nemotron(PartialRotaryDecoder):
    """Nemotron-4 and Minitron: LayerNorms that store the scale minus 1, an MLP of two matrices with squared
    ReLU, half-rotary heads."""

    sizes = dict(vocab=256000, hidden=6144, mlp=24576, layers=32, heads=48, context=4096)
    defaults = dict(hidden_act="relu2")
    partial_rotary_factor: Fraction = 0.5
    attention_bias: StrictBool = False
    mlp_bias: StrictBool = False
    norm_eps: PositiveFloat = 1e-5
    task_heads = LABELLING
    attribute_map = {"rope_percent": "partial_rotary_factor", "rope_percentage": "partial_rotary_factor"}
    norm_kind, eps_field, mlp_gated = "layer", "norm_eps", False
    norm_weight_minus_one = True


class NemotronNas(Llama):
    """Nemotron Super and Ultra: Llama's layer, with attention and MLP sizes per layer, or without one of them, as
    listed in block_configs."""

    num_key_value_heads: PositiveInt | None = None  # type: ignore[assignment]
    intermediate_size: PositiveInt | None = None  # type: ignore[assignment]
    head_dim: PositiveInt | None = None  # type: ignore[assignment]
    block_configs: list[JsonDict]

    class_prefixes = ("DeciLM",)
    has_hf_class = False
    nested_defaults = {}
    reference_only = "num_key_value_heads intermediate_size head_dim"
    task_heads = {"ForCausalLM": CAUSAL_MODEL}

    def layers(self) -> list[Layer]:
        """Layers with attention or an MLP. Raises ConfigError."""
        given = self.block_configs
        check_length("block_configs", given, self.num_hidden_layers)
        for name in ("num_key_value_heads", "intermediate_size"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"{name} = {getattr(self, name)} contradicts block_configs, which has one entry per layer"
                )
        listed = [(_group(number, entry), self._width(number, entry)) for number, entry in enumerate(given)]
        if not any(group or width for group, width in listed):
            raise ConfigError("block_configs lists no layer with attention or an MLP")
        return [Layer(kv_heads=self._kv_heads(group), width=width) for group, width in listed if group or width]

    def _kv_heads(self, group: int | None) -> int | None:
        if group is None:
            return None
        return divide_exactly(self.num_attention_heads, group, "num_attention_heads by n_heads_in_group")

    def _width(self, number: int, entry: Mapping[str, Any]) -> int | None:
        part = _part(number, entry, "ffn")
        if part is None:
            return None
        times = part.get("ffn_mult")
        if not isinstance(times, (int, float)) or isinstance(times, bool) or not 0 < times <= 1_000:
            raise _unsupported_value(number, "ffn.ffn_mult", times)
        width = int(2 * times * self.hidden_size / 3)  # in floating point, as in its code
        return -(-width // 256) * 256

    def head_sizes(self, layer: Any) -> dict[str, int]:
        size = require_even(self.divide("hidden_size", "num_attention_heads"))
        return {"kv_heads": layer.kv_heads, "group": self.num_attention_heads // layer.kv_heads, "head_dim": size}

    def block(self, layer: Layer) -> Block:
        parts: list[Any] = []
        if layer.kv_heads is not None:
            parts.append(self.attention(layer))
        if layer.width is not None:
            parts.append(self.dense_mlp(width=layer.width))
        return Block.of(*parts, norm=self.norm())


def _group(number: int, entry: Mapping[str, Any]) -> int | None:
    part = _part(number, entry, "attention")
    if part is None:
        return None
    group = part.get("n_heads_in_group")
    if not is_size(group):
        raise _unsupported_value(number, "attention.n_heads_in_group", group)
    return group


def _part(number: int, entry: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Fields of one part of a layer; None if it has none. Raises ConfigError."""
    part = entry.get(name)
    if not isinstance(part, dict):
        raise _unsupported_value(number, name, part)
    if part.get("no_op") is True:
        return None
    for field, value in part.items():
        read = field in ("no_op", "n_heads_in_group", "ffn_mult")
        if not read and value not in (None, False):
            raise _unsupported_value(number, f"{name}.{field}", value)
    return part


def _unsupported_value(number: int, name: str, value: object) -> ConfigError:
    return ConfigError(f"block_configs[{number}].{name} = {format_value(value)} is not supported")


MLP, MOE = "mlp", "moe"
LAYER_AXES = {"M": MAMBA, "*": FULL, "-": MLP, "E": MOE}
"""Kinds of layers in hybrid_override_pattern."""
EARLIER_NAMES = {"mamba": MAMBA, "attention": FULL}
EXPERT_FIELDS = {
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "moe_latent_size",
}
"""Fields that only matter if a layer has experts."""


class NemotronH(Mamba2Family, HybridDecoder):
    """Nemotron-H and Nemotron 3: each layer has one sublayer, Mamba-2, attention without rotary embedding, an MLP or
    experts."""

    sizes = dict(vocab=131072, hidden=4096, mlp=21504, heads=32, kv_heads=8, head_dim=128, context=4096)
    layers_block_type: LayerTypes | None = None
    hybrid_override_pattern: StrictStr | None = None
    num_hidden_layers: LayerCount | None = None  # type: ignore[assignment]
    mlp_bias: StrictBool = False
    mlp_hidden_act: StrictStr = "relu2"
    ssm_state_size: PositiveInt = 128
    mamba_num_heads: PositiveInt = 128
    mamba_head_dim: PositiveInt = 64
    mamba_hidden_act: StrictStr = "silu"
    n_groups: PositiveInt = 8
    conv_kernel: PositiveInt = 4
    use_conv_bias: StrictBool = True
    chunk_size: PositiveInt = 128
    use_bias: StrictBool = False
    time_step_min: PositiveFloat = 0.001
    layer_norm_epsilon: PositiveFloat = 1e-5
    n_routed_experts: PositiveInt = 8
    num_experts_per_tok: PositiveInt = 2
    moe_intermediate_size: PositiveInt = 7688
    moe_shared_expert_intermediate_size: PositiveInt = 7688
    moe_latent_size: PositiveInt | None = None

    reference_only = "num_hidden_layers -hybrid_override_pattern"
    required_values = {"tie_word_embeddings": False}
    attribute_map = {
        "layer_types": "layers_block_type",
        "num_local_experts": "n_routed_experts",
        "attention_head_dim": "head_dim",
        "mamba_n_groups": "n_groups",
        "mamba_d_conv": "conv_kernel",
        "mamba_conv_bias": "use_conv_bias",
        "mamba_chunk_size": "chunk_size",
        "mamba_dt_min": "time_step_min",
    }
    ignored_fields = """attention_bias expand mamba_dt_init_floor mamba_dt_limit mamba_dt_max mamba_expand
        mamba_proj_bias mamba_ssm_cache_dtype moe_shared_expert_overlap n_group n_shared_experts norm_eps
        num_logits_to_keep rescale_prenorm_residual residual_in_fp32 routed_scaling_factor time_step_floor
        time_step_limit time_step_max time_step_rank topk_group use_mamba_kernels"""
    checkpoint_conversion_mapping = ((r"^backbone\.", "model."),)
    module_names = {"embed": "model.embeddings", "final_norm": "model.norm_f"}
    layer_module_names = {
        **{f"{part}_norm": "norm" for part in ("attn", "mamba", "mlp")},
        **attention_modules("mixer"),
        **mamba2_modules("mixer"),
        **mlp_modules("mixer", gate=None),
        **expert_modules("mixer"),
        **mlp_modules("mixer.shared_experts", gate=None, at="mlp.shared"),
        "mlp.latent_down": "mixer.fc1_latent_proj",
        "mlp.latent_up": "mixer.fc2_latent_proj",
        "mlp.gate_proj": ABSENT,
        "mlp.experts.gate_proj": ABSENT,
    }
    layer_tensor_names = {
        **mamba2_tensors("mixer"),
        **{f"mlp.experts.{name}.weight": f"mixer.experts.{name}" for name in ("up_proj", "down_proj")},
    }
    conv_kernel_field, eps_field, mlp_gated = "conv_kernel", "layer_norm_epsilon", False
    expert_count = "n_routed_experts"
    activation = property(attrgetter("mlp_hidden_act"))
    experts_options = dict(
        shared=attrgetter("moe_shared_expert_intermediate_size"),
        shared_bias=attrgetter("mlp_bias"),
        gated=False,
        latent=attrgetter("moe_latent_size"),
    )

    def unread_fields(self) -> set[str]:
        return set() if MOE in self.layer_kinds() else EXPERT_FIELDS

    def layer_kinds(self) -> list[str]:
        """The kind of each layer. Raises ConfigError."""
        field = "layers_block_type" if self.layers_block_type is not None else "hybrid_override_pattern"
        listed, count = getattr(self, field), self.num_hidden_layers
        if listed is None:
            raise ConfigError("layers_block_type or hybrid_override_pattern must name the layers")
        kinds = [LAYER_AXES.get(name, EARLIER_NAMES.get(name, name)) for name in listed]
        for number, kind in enumerate(kinds):
            if kind not in LAYER_AXES.values():
                raise ConfigError(f"{field}[{number}] = {listed[number]!r} is not supported: use M, *, - or E")
        if not kinds or count not in (None, len(kinds)):
            raise ConfigError(f"{field} names {len(kinds):,} layers, and num_hidden_layers is {count}")
        return kinds

    def layers(self) -> list[Layer]:
        found = [Layer(kind=kind, experts=kind == MOE, rotary=False) for kind in self.layer_kinds()]
        for kind in (FULL, MAMBA):  # also checked if no layer has it
            self.attention(Layer(kind=kind, rotary=False))
        return found

    def mixer(self) -> Mamba2Mixer:
        group = self.divide("mamba_num_heads", "n_groups")
        sizes = {"group": group, "head_dim": self.mamba_head_dim, "state": self.ssm_state_size}
        return self.mamba2_mixer(**sizes, activation=self.mamba_hidden_act, least_step=self.time_step_min)

    def block(self, layer: Layer) -> Block:
        part = self.attention(layer) if layer.kind in (FULL, MAMBA) else self.mlp(layer)
        return Block.of(part, norm=self.norm())
