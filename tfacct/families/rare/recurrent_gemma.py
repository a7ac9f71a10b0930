"""RecurrentGemma, and its RG-LRU."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import DeltaNet, FeedForward, Mixer
from tfacct.architecture.parts.part import STATE_BITS
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.decoder import Layer, default_head_dim
from tfacct.families.family import SAME_AS_QUERY_HEADS, attention_modules, mlp_modules, submodules
from tfacct.families.fields import Fraction, PositiveFloat, PositiveInt, StrictStr, divide_exactly
from tfacct.families.gemma import GemmaBase
from tfacct.families.layer_kinds import LayerTypes, validated_layer_types
from tfacct.families.task_heads import BODY, CAUSAL_MODEL
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD, Line, Matmul, Pointwise, State
from tfacct.ledger.workload import Workload

LRU, ATTENTION = "recurrent", "attention"


@record(kw_only=True)
class RGLRU(Mixer):
    """RG-LRU: a gated linear recurrence, after a short convolution: De et al., "Griffin" (arXiv 2402.19427), section
    2.4, with the matmuls of transformers' RecurrentGemmaRecurrentBlock.

    Two projections give `blocks` · `block_dim` channels each. One result passes a depthwise convolution over a token
    and the `before` tokens before it, then the recurrence; the other one, activated, gates the result. The state is one
    value per channel: each token decays it and adds a gated input. Both gates multiply the channels of each block with
    a matrix of the block. All projections and the convolution have biases.
    """

    hidden: Size
    blocks: Size
    block_dim: Size
    before: Size
    activation: str = "gelu_pytorch_tanh"

    name: ClassVar[str] = "lru"
    label: ClassVar[str] = "gated recurrence"
    listed_after: ClassVar[tuple[str, int]] = (DeltaNet.name, 2)
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "blocks": "Nb", "block_dim": "Hb", "before": "Kp"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Dr": "channels of the recurrence, Nb · Hb",
        "Nb": "blocks of channels that share their gates",
        "Hb": "channels of a block",
        "Ob": "gates of a block, Hb",
        "Kp": "earlier tokens in the convolution kernel",
        "Kc": "convolution kernel size in tokens",
    }
    made: ClassVar[dict[str, str]] = {"Dr": "Nb · Hb", "Ob": "Hb", "Kc": "Kp + 1"}
    cases: ClassVar[frozenset[str]] = frozenset(("Nb", "Kp"))
    recurs: ClassVar[bool] = True
    hf_loop: ClassVar[str] = "the tokens in Python: 4,096 tokens take about a minute"
    recurrence: ClassVar[str] = "the recurrence of RG-LRU"

    @property
    def width(self) -> Size:
        """Number of channels, Dr = Nb · Hb."""
        return self.blocks * self.block_dim

    def lines(self, at: str) -> Iterator[Line]:
        """Both projections, convolution, gates, recurrence (pointwise work), output projection, and the states: the
        convolution's last tokens, and one value per channel."""
        gates = "B T Nb Hb, Nb Hb Ob -> B T Nb Ob"
        yield Matmul(f"{at}.y_proj", "B T D, D Dr -> B T Dr", bias=True)
        yield Pointwise(f"{at}.act", "B T Dr", kind="activation", function=self.activation)
        yield Matmul(f"{at}.x_proj", "B T D, D Dr -> B T Dr", bias=True)
        yield Matmul(f"{at}.conv", "B T Dr Kc, Dr Kc -> B T Dr", bias=True)
        yield Matmul(f"{at}.input_gate", gates, bias=True)
        yield Matmul(f"{at}.decay_gate", gates, bias=True)
        yield Pointwise(f"{at}.decay", "B T Dr", weight="Dr")
        yield Pointwise(f"{at}.input", "B T Dr")
        yield Pointwise(f"{at}.recurrence", "B T Dr")
        yield Pointwise(f"{at}.gate", "B T Dr", kind="gate")
        yield Matmul(f"{at}.out_proj", "B T Dr, Dr D -> B T D", bias=True)
        yield State(f"{at}.conv_state", "B Dr Kp")
        yield State(f"{at}.lru_state", "B Dr", STATE_BITS)


class RecurrentGemma(GemmaBase):
    """RecurrentGemma (Griffin): two layers with a gated linear recurrence, then one with attention in a window."""

    sizes = dict(vocab=256000, hidden=2560, mlp=7680, layers=26, heads=10, kv_heads=SAME_AS_QUERY_HEADS)
    defaults = dict(head_dim=Field(default_factory=default_head_dim))
    hidden_activation: StrictStr = "gelu_pytorch_tanh"
    partial_rotary_factor: Fraction = 0.5
    logits_soft_cap: PositiveFloat = 30.0
    lru_width: PositiveInt = Field(default_factory=lambda fields: fields["hidden_size"])
    conv1d_width: PositiveInt = 4
    attention_window_size: PositiveInt = 2048
    block_types: LayerTypes = Field(default_factory=lambda _: [LRU, LRU, ATTENTION])

    attribute_map = {"_block_types": "block_types", "sliding_window": "attention_window_size"}
    reference_only = "max_position_embeddings"  # that of the published models; the class has no field for it
    ignored_fields = "w_init_variance_scale final_w_init_variance_scale embeddings_scale_by_sqrt_dim"
    task_heads = {"ForCausalLM": replace(CAUSAL_MODEL, gives=False), "Model": replace(BODY, gives=False)}
    module_names = {"final_norm": "model.final_norm"}
    layer_module_names = {
        "attn_norm": "temporal_pre_norm",
        "lru_norm": "temporal_pre_norm",
        **attention_modules("temporal_block"),
        **submodules("lru", "temporal_block", y_proj="linear_y", x_proj="linear_x", conv="conv_1d"),
        **submodules("lru", "temporal_block", input_gate="rg_lru", decay_gate="rg_lru", out_proj="linear_out"),
        "mlp_norm": "channel_pre_norm",
        **mlp_modules("mlp_block"),
    }
    layer_tensor_names = {
        "lru.input_gate.weight": "temporal_block.rg_lru.input_gate_weight",
        "lru.input_gate.bias": "temporal_block.rg_lru.input_gate_bias",
        "lru.decay_gate.weight": "temporal_block.rg_lru.recurrent_gate_weight",
        "lru.decay_gate.bias": "temporal_block.rg_lru.recurrent_gate_bias",
        "lru.decay.weight": "temporal_block.rg_lru.recurrent_param",
    }
    hf_extra_note = (
        "its convolution also runs over padding, which it then drops; in a decode step its convolution is a sum, not"
        " a matmul"
    )
    activation = property(attrgetter("hidden_activation"))
    head_options = dict(softcap=attrgetter("logits_soft_cap"))
    partial_rotary, attention_options = True, dict(out_bias=True)

    def layers(self) -> list[Layer]:
        """The pattern of block_types, repeated. Raises ConfigError."""
        pattern = self.block_types
        if not pattern:
            raise ConfigError("block_types names no kind of layer")
        validated_layer_types(pattern, len(pattern), (LRU, ATTENTION), "block_types")
        kinds = [pattern[number % len(pattern)] for number in range(self.num_hidden_layers)]
        return [Layer(self.attention_window_size if kind == ATTENTION else None, kind=kind) for kind in kinds]

    def mixer(self) -> RGLRU:
        """The recurrence of a layer without attention. Raises ConfigError."""
        if self.conv1d_width < 2:
            raise self.refused("conv1d_width", self.conv1d_width)
        return RGLRU(
            hidden=self.hidden_size,
            blocks=self.num_attention_heads,
            block_dim=self.divide("lru_width", "num_attention_heads"),
            before=self.conv1d_width - 1,
            activation=self.activation,
        )

    def mlp(self, layer: Layer) -> FeedForward:
        """Half as wide as intermediate_size."""
        width = divide_exactly(self.intermediate_size, 2, "intermediate_size by 2")
        return self.dense_mlp(width=width, bias=True)

    def block(self, layer: Layer) -> Block:
        mixer = self.attention(layer) if layer.kind == ATTENTION else self.mixer()
        return Block.of(mixer, self.mlp(layer), norm=self.norm())

    def hf_unsupported(self) -> str | None:
        """It needs a layer with attention, because the class reads the cache length from it."""
        attends = ATTENTION in self.block_types[: self.num_hidden_layers]
        return None if attends else "it needs at least one attention layer"

    def hf_extra_positions(self, work: Workload) -> Mapping[str, int]:
        """The class pads both ends of a convolution."""
        return {} if work.tokens == 1 else {"blocks.*.lru.conv": self.conv1d_width - 1}

    def hf_extra_flops(self, work: Workload) -> Mapping[str, int]:
        """The convolution of a single new token is not a matmul in the class."""
        if work.tokens > 1 or LRU not in self.block_types[: self.num_hidden_layers]:
            return {}
        return {"blocks.*.lru.conv": -FLOPS_PER_MULTIPLY_ADD * work.batch * self.lru_width * self.conv1d_width}
