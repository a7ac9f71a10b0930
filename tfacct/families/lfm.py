"""Liquid AI's language models."""

from operator import attrgetter

from tfacct.architecture.parts import Gate, QKNorm, ShortConvolution
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import QK_LAYERNORMS, QK_NORMS, Layer, Window, expert_modules, expert_tensors
from tfacct.families.family import mlp_modules, submodules
from tfacct.families.fields import NonNegativeInt, PositiveFloat, PositiveInt, StrictBool
from tfacct.families.hybrid import HybridDecoder
from tfacct.families.layer_kinds import FULL, SLIDING, LayerTypes, validated_layer_types

CONV = "conv"


class LfmDecoder(HybridDecoder):
    """The fields that they share."""

    sizes = dict(vocab=65536, layers=32, heads=32, kv_heads=8, context=128_000)
    defaults = dict(tie_word_embeddings=True, rope_theta=1_000_000.0)
    norm_eps: PositiveFloat = 1e-5
    conv_bias: StrictBool = False
    conv_L_cache: PositiveInt = 3  # noqa: N815

    attribute_map = {"tie_embedding": "tie_word_embeddings"}
    ignored_fields = """conv_dim conv_dim_out conv_use_xavier_init use_pos_enc block_dim block_mlp_init_scale
        block_norm_eps block_out_init_scale block_use_swiglu block_use_xavier_init theta"""
    module_names = {"final_norm": "model.embedding_norm"}
    layer_module_names = {
        **dict.fromkeys(("attn_norm", "conv_norm"), "operator_norm"),
        **submodules("conv", "conv", "in_proj out_proj"),
        "conv.conv": "conv",
        "mlp_norm": "ffn_norm",
    }
    layer_tensor_names = {f"conv.conv.{tensor}": f"conv.conv.{tensor}" for tensor in ("weight", "bias")}
    conv_module, conv_kernel_field = "conv.conv", "conv_L_cache"
    qk_norm, eps_field = QKNorm(0), "norm_eps"

    def mixer(self) -> ShortConvolution:
        return ShortConvolution(hidden=self.hidden_size, kernel=self.conv_L_cache, bias=self.conv_bias)


class Lfm2Base(LfmDecoder):
    """LFM2's modules."""

    layer_module_names = {
        "attn.o_proj": "self_attn.out_proj",
        **QK_LAYERNORMS,
        **mlp_modules("feed_forward", up="w3", down="w2", gate="w1"),
    }
    activation = "silu"

    def layer_kinds(self) -> list[str]:
        """The kind of each layer, by layer_types. Raises ConfigError."""
        return validated_layer_types(self.layer_types, self.num_hidden_layers, (FULL, CONV))

    def layers(self) -> list[Layer]:
        found = [Layer(kind=kind) for kind in self.layer_kinds()]
        self.attention(Layer())  # also checked if no layer has it
        return found


class Lfm2(Lfm2Base):
    """LFM2: gated short convolutions in most layers, grouped-query attention with norms of queries and keys in the
    others."""

    sizes = dict(hidden=2560, mlp=12288)
    block_ff_dim: PositiveInt | None = None
    block_auto_adjust_ff_dim: StrictBool = True
    block_ffn_dim_multiplier: PositiveFloat = 1.0
    block_multiple_of: PositiveInt = 256
    layer_types: LayerTypes | None = None
    full_attn_idxs: list[NonNegativeInt] | None = None

    reference_only = "-block_ffn_dim_multiplier"
    mlp_options = dict(width=attrgetter("width"))

    @property
    def width_field(self) -> str:
        return "intermediate_size" if self.block_ff_dim is None else "block_ff_dim"

    @property
    def width(self) -> int:
        """Width of the MLP."""
        given: int = getattr(self, self.width_field)
        if not self.block_auto_adjust_ff_dim:
            return given
        width = int(self.block_ffn_dim_multiplier * int(2 * given / 3))  # rounded as in the class
        return -(-width // self.block_multiple_of) * self.block_multiple_of

    def check(self) -> None:
        if self.width < 1:
            raise ConfigError(f"{self.width_field} = {getattr(self, self.width_field):,} gives an MLP of width 0")

    def layer_kinds(self) -> list[str]:
        """The kind of each layer, by layer_types, or attention in the layers of full_attn_idxs, by default in all."""
        if self.layer_types is not None:
            return super().layer_kinds()
        count = self.num_hidden_layers
        attends = range(count) if self.full_attn_idxs is None else self.full_attn_idxs
        return [FULL if number in attends else CONV for number in range(count)]


class Lfm2Moe(Lfm2Base):
    """LFM2-MoE: LFM2's convolutions and attention; dense layers first, then experts."""

    sizes = dict(hidden=2048, mlp=7168)
    layer_types: LayerTypes
    moe_intermediate_size: PositiveInt = 1792
    num_dense_layers: NonNegativeInt = 2
    num_experts: PositiveInt = 32
    num_experts_per_tok: PositiveInt = 4
    use_expert_bias: StrictBool = True

    reference_only = "use_expert_bias"
    ignored_fields = "routed_scaling_factor"
    layer_module_names, layer_tensor_names = expert_modules("feed_forward"), expert_tensors("feed_forward")

    def layers(self) -> list[Layer]:
        dense = self.num_dense_layers
        return [layer._replace(experts=number >= dense) for number, layer in enumerate(super().layers())]


class Lfm3(LfmDecoder):
    """LFM3: LFM2's short convolutions; gated attention, with a window in every other attention layer; norms around
    every sublayer."""

    sizes = dict(vocab=128_000, hidden=2048, mlp=7680, layers=24, heads=16, kv_heads=4, head_dim=128)
    defaults = dict(rope_theta=None, conv_L_cache=7)
    attention_bias: StrictBool = False
    sliding_window: Window | None = 256
    layer_types: LayerTypes | None = None
    use_sandwich_norm: StrictBool = True
    use_attention_gate: StrictBool = True

    checkpoint_conversion_mapping = ((r"\.self_attn\.gate_proj\.", ".self_attn.g_proj."),)
    layer_module_names = {
        **QK_NORMS,
        "attn.gate_proj": "self_attn.g_proj",
        **dict.fromkeys(("attn_post_norm", "conv_post_norm"), "post_operator_norm"),
        **mlp_modules("feed_forward", up="w3", down="w2", gate="w1"),
        "mlp_post_norm": "post_ffn_norm",
    }
    norms = property(lambda self: "around" if self.use_sandwich_norm else "before")
    gate = property(lambda self: Gate("heads", bias=False) if self.use_attention_gate else None)
    attention_options = dict(gate=attrgetter("gate"))
    rope_by_kind = {
        FULL: {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.5},
        SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    }

    def layers(self) -> list[Layer]:
        """The layers, by layer_types, or attention in every second layer but the first, with a window in every
        fourth."""
        count, window = self.num_hidden_layers, self.sliding_window
        kinds = [FULL if n % 4 == 2 else SLIDING if n % 4 == 0 and n > 0 else CONV for n in range(count)]
        if self.layer_types is not None:
            kinds = validated_layer_types(self.layer_types, count, (FULL, SLIDING, CONV))
        if SLIDING in kinds and window is None:
            raise ConfigError(f"layer {kinds.index(SLIDING)} has {SLIDING}, but sliding_window is null")
        return [Layer(window, kind=FULL) if kind == SLIDING else Layer(kind=kind) for kind in kinds]
