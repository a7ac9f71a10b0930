"""Models with short convolutions, and decoders with attention in some layers and another mixer in the others."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import DeltaNet
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.families.decoder import Decoder, Layer, SharedExperts
from tfacct.families.family import Family, submodules
from tfacct.families.fields import JsonDict, PositiveInt, divide_exactly, is_size
from tfacct.families.layer_kinds import FULL, LayerTypes, validated_layer_types
from tfacct.ledger.lines import CHUNK
from tfacct.ledger.workload import Workload

PADS = "its convolution also runs over padding, which it then drops"


def extra_conv_positions(kernel: int, work: Workload) -> int:
    """Positions over which a class runs a convolution, beyond the new tokens.

    The class pads both ends of a prefill by kernel − 1, and a prefill shorter than the kernel to the kernel size. A
    decode step convolves kernel + 1 tokens, so two positions. A later chunk includes the last kernel tokens, padded at
    both ends.
    """
    tokens: int = work.tokens
    if tokens == work.context:
        return max(kernel - tokens, 0) + kernel - 1
    return 1 if tokens == 1 else 2 * kernel - 1


class ConvolutionFamily(Family):
    """A family whose class also runs its short convolution over padding."""

    conv_module: ClassVar[str] = "mamba.conv"
    conv_kernel_field: ClassVar[str] = "mamba_d_conv"
    hf_extra_note = PADS
    conv_kernel_size = property(lambda self: getattr(self, self.conv_kernel_field))

    def mixer(self) -> Any:
        """The part with the convolution. Raises ConfigError."""
        raise NotImplementedError

    def hf_extra_positions(self, work: Workload) -> Mapping[str, int]:
        return {f"blocks.*.{self.conv_module}": extra_conv_positions(self.conv_kernel_size, work)}


class HybridFamily(ConvolutionFamily):
    """The same with attention in some layers."""

    def hf_unsupported(self) -> str | None:
        """It needs a layer with attention, because the class reads the cache length from it."""
        reason = super().hf_unsupported()
        if reason or self.transformer().attentions:
            return reason
        return "it needs at least one attention layer"


class HybridDecoder(HybridFamily, Decoder):
    """Attention in layers of kind full_attention, a mixer with a convolution in all others."""

    def attention(self, layer: Layer, **overrides: Any) -> Any:
        return super().attention(layer, **overrides) if layer.kind == FULL else self.mixer()


LINEAR = "linear_attention"
CHUNK_PRODUCTS = "conv key_pairs chunk_scores old_values state_read chunk_values state_write"
"""Lines that the class computes directly in the DeltaNet module."""
CHANNEL_CHUNK_PRODUCTS = "conv new_values new_keys old_values state_read chunk_values state_write"
"""The same with per-channel decays."""


def delta_modules(module: str, inside: str = CHUNK_PRODUCTS, **modules: str) -> dict[str, str]:
    """Modules of DeltaNet: those that it computes directly, and its submodules."""
    return submodules("delta", module, **dict.fromkeys(inside.split(), ""), **modules)


def delta_tensors(module: str, decay: str = "") -> dict[str, str]:
    """Tensors of DeltaNet that are not a module's weight."""
    return {
        "delta.conv.weight": f"{module}.conv1d.weight",
        "delta.decay.weight": f"{module}.{decay}A_log",
        "delta.decay.bias": f"{module}.{decay}dt_bias",
    }


class DeltaDecoder(HybridFamily, Decoder):
    """Layers of kind `linear_attention` have DeltaNet after a norm; the others are the family's own layers."""

    layer_types: LayerTypes | None = None

    constant_axes = frozenset({CHUNK, "Qc"})
    layer_module_names = {"delta_norm": "input_layernorm"}
    conv_module = "delta.conv"

    def kinds(self, attends: Callable[[int], bool]) -> list[str]:
        """The kind of each layer, by layer_types or by default. Raises ConfigError."""
        if self.layer_types is not None:
            return validated_layer_types(self.layer_types, self.num_hidden_layers, (FULL, LINEAR))
        return [FULL if attends(number) else LINEAR for number in range(self.num_hidden_layers)]

    def delta_size(self, field: str) -> Any:
        """A size of DeltaNet."""
        return getattr(self, field)

    conv_kernel_size = property(lambda self: self.delta_size("linear_conv_kernel_dim"))

    def delta(self, **overrides: Any) -> DeltaNet:
        """DeltaNet, whose value heads share key heads."""
        key_heads, heads = self.linear_num_key_heads, self.linear_num_value_heads
        return DeltaNet(
            hidden=self.hidden_size,
            key_heads=key_heads,
            group=divide_exactly(heads, key_heads, "linear_num_value_heads by linear_num_key_heads"),
            activation=self.hidden_act,
            key_dim=self.linear_key_head_dim,
            value_dim=self.linear_value_head_dim,
            kernel=self.linear_conv_kernel_dim,
            **{"eps": self.rms_norm_eps, **overrides},
        )

    def block(self, layer: Any) -> Block:
        if layer.kind != LINEAR:
            return super().block(layer)
        return Block.of(self.delta(), self.mlp(layer), norm=self.norm())


class KimiDeltaDecoder(DeltaDecoder):
    """Kimi's delta attention (KDA): every channel of a key has its own decay."""

    constant_axes = DeltaDecoder.constant_axes | {"Gd"}
    layer_module_names = delta_modules(
        "self_attn",
        CHANNEL_CHUNK_PRODUCTS,
        **{name: name for name in ("q_proj", "k_proj", "v_proj")},
        rate_proj="b_proj",
        out_norm="o_norm",
        out_proj="o_proj",
    )
    layer_tensor_names = delta_tensors("self_attn", "forget_gate.")
    published_forget_gate: ClassVar = (
        r"\.self_attn\.(f_a_proj|f_b_proj|f_proj|dt_bias|A_log)",
        r".self_attn.forget_gate.\1",
    )
    """For checkpoint_conversion_mapping: published files have no module of this name."""

    def delta(self, **overrides: Any) -> DeltaNet:
        size = self.delta_size("linear_head_dim")
        return DeltaNet(
            hidden=self.hidden_size,
            key_heads=self.delta_size("linear_num_heads"),
            group=1,
            activation=self.hidden_act,
            key_dim=size,
            value_dim=size,
            kernel=self.delta_size("linear_conv_kernel_dim"),
            gate="sigmoid",
            eps=self.rms_norm_eps,
            decay="channel",
            **overrides,
        )


class KimiExperts(SharedExperts):
    """Experts with the names of Kimi Linear."""

    num_local_experts: PositiveInt
    n_shared_experts: PositiveInt = 1

    attribute_map = {
        "num_experts": "num_local_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "num_shared_experts": "n_shared_experts",
        "model_max_length": "max_position_embeddings",
    }
    expert_count = "num_local_experts"


class LowRankKimiDeltaDecoder(KimiDeltaDecoder):
    """KDA with low-rank projections for gates and decays. Its sizes may be in linear_attn_config."""

    linear_attn_config: JsonDict | None = None
    linear_head_dim: PositiveInt = 128
    linear_conv_kernel_dim: PositiveInt = 4
    linear_num_heads: PositiveInt = 32

    size_fields: ClassVar[Mapping[str, str]] = {
        "linear_head_dim": "head_dim",
        "linear_num_heads": "num_heads",
        "linear_conv_kernel_dim": "short_conv_kernel_size",
    }
    """Field → its name in linear_attn_config, which takes precedence."""
    reference_only = "-linear_attn_config"
    attention_options = dict(rotary=None)
    layer_module_names = delta_modules(
        "self_attn",
        "",
        gate_a_proj="g_a_proj",
        gate_b_proj="g_b_proj",
        decay_a_proj="forget_gate.f_a_proj",
        decay_b_proj="forget_gate.f_b_proj",
    )

    def delta_size(self, field: str) -> Any:
        """Raises ConfigError."""
        name = self.size_fields[field]
        size = (self.linear_attn_config or {}).get(name, getattr(self, field))
        if not is_size(size):
            raise ConfigError(f"linear_attn_config.{name} must be a whole number from 1, not {format_value(size)}")
        return size

    def delta(self, **overrides: Any) -> DeltaNet:
        return super().delta(rank=self.delta_size("linear_head_dim"), **overrides)
