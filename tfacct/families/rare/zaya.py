"""ZAYA1, and its parts: compressed convolutional attention, experts with an MLP router, affine residuals."""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Attention, Embedding, Experts, Part, Residual, Rotary
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.decoder import EXPERT_TENSORS, DecoderBase, Layer
from tfacct.families.family import attention_modules, submodules
from tfacct.families.fields import (
    JsonDict,
    LayerCount,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    read_partial_rotary_factor,
    require_even,
)
from tfacct.families.layer_kinds import LayerTypes, validated_layer_types
from tfacct.families.task_heads import CAUSAL_MODEL
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State
from tfacct.ledger.workload import Workload

FULL, SLIDING = "hybrid", "hybrid_sliding"
ROPE_THETA = {FULL: 5_000_000.0, SLIDING: 10_000.0}
QKV, ROUTER = "self_attn.qkv_proj", "mlp.gate"


@record(kw_only=True)
class AffineEmbedding(Embedding):
    """Token embedding with a learned shift and scale (ZayaModel)."""

    legend: ClassVar[dict[str, str]] = {axis: Embedding.legend[axis] for axis in "VD"}

    def lines(self, at: str) -> Iterator[Line]:
        """The embedding, and the work on its rows."""
        yield from Embedding.lines(self, at)
        yield Pointwise(f"{at}.shift", "B T D", weight="D", bias="D")


@record(kw_only=True)
class AffineResidual(Residual):
    """ZayaResidualScaling: learned shifts and scales of the residual stream and of the result."""

    def gates(self, at: str) -> Iterator[Line]:
        for name in ("stream_gate", "gate"):
            yield Pointwise(f"{at}.{name}", "B T D", weight="D", bias="D")


@record(kw_only=True)
class CCA(Attention):
    """Compressed convolutional attention: Figliolia et al. (arXiv 2510.04476), with the matmuls of transformers'
    ZayaCCAProjection.

    Queries and keys pass a depthwise convolution over a token and the `first` tokens before it, then a convolution that
    mixes the channels of each head, over a token and the `second` tokens before it. The means of a key and its queries
    are added to both. Both are normalized to one length, and keys scaled by a learned factor per head. Half of each
    value (`half` of `head_dim` channels) is a projection of the token, the other half of the previous token.

    The queries and keys of the last tokens are a state, so the first convolution runs again on those that the second
    one needs.
    """

    half: Size
    first: Size
    second: Size
    head_dim: Size = 0

    mesh_unsupported: ClassVar[str] = "attention with convolutions on queries and keys"
    axis_names: ClassVar[dict[str, str]] = {
        **{field: axis for field, axis in Attention.axis_names.items() if field != "head_dim"},
        "half": "Hj",
        "first": "Ka",
        "second": "Ks",
    }
    legend: ClassVar[dict[str, str]] = {
        **{axis: Attention.legend[axis] for axis in ("D", "N", "K", "G", "H", "Hr", "W")},
        "Hj": "half the size of one head",
        "Ho": "values per head after the second convolution of queries and keys, 2 · Hj",
        "Nj": "heads of queries and of keys, K · G + K",
        "Ka": "tokens before a token's own that the first convolution of queries and keys sees",
        "Kq": "tokens that it sees, Ka + 1",
        "Ks": "tokens before a token's own that the second convolution of queries and keys sees",
        "Kw": "tokens that it sees, Ks + 1",
        "Kl": "tokens that both see before a token's own, Ka + Ks",
    }
    made: ClassVar[dict[str, str]] = {
        **Attention.made,
        "H": "2 · Hj",
        "Ho": "2 · Hj",
        "Nj": "K · G + K",
        "Kq": "Ka + 1",
        "Kw": "Ks + 1",
        "Kl": "Ka + Ks",
    }
    at_most: ClassVar[dict[str, str]] = {"Hr": "Hj"}

    def __post_init__(self) -> None:
        object.__setattr__(self, "head_dim", 2 * self.half)

    def sizes(self) -> dict[str, str]:
        """Return field → axis."""
        return Part.sizes(self)

    def lines(self, at: str) -> Iterator[Line]:
        """Projections, convolutions, means, lengths, then scores and values as in attention."""
        biased, tokens = self.qkv_bias, "B T Nj H"
        first, second = f"{at}.conv", f"{at}.mixing_conv"
        attention = (line for line in Attention.lines(self, at) if line.path.removeprefix(f"{at}.") in _OF_ATTENTION)
        *work, k_cache, v_cache = attention
        yield Matmul(f"{at}.q_proj", "B T D, D N H -> B T N H", bias=biased)
        yield Matmul(f"{at}.k_proj", "B T D, D K H -> B T K H", bias=biased)
        yield Matmul(f"{at}.v_proj", "B T D, D K Hj -> B T K Hj", bias=biased)
        yield Matmul(f"{at}.late_v_proj", "B T D, D K Hj -> B T K Hj", bias=biased)
        yield Pointwise(f"{at}.q_mean", "B T N H", kind="sum")
        yield Pointwise(f"{at}.k_mean", "B T K H", kind="sum")
        yield Matmul(f"{at}.conv_again", "B Ks Nj H Kq, Nj H Kq -> B Ks Nj H", weight=first)
        yield Matmul(first, f"{tokens} Kq, Nj H Kq -> {tokens}", bias=True)
        yield Matmul(second, f"{tokens} Kw, Nj H Kw Ho -> B T Nj Ho", bias=True)
        yield Pointwise(f"{at}.q_add", "B T N H", kind="sum")
        yield Pointwise(f"{at}.k_add", "B T K H", kind="sum")
        yield Pointwise(f"{at}.q_norm", "B T N H", kind="norm_rms")
        yield Pointwise(f"{at}.k_norm", "B T K H", kind="norm_rms")
        yield Pointwise(f"{at}.k_factor", "B T K H", weight="K")
        yield from work
        yield State(f"{at}.conv_state", "B Nj H Kl")
        yield State(f"{at}.v_state", "B K Hj")
        yield k_cache
        yield v_cache


_OF_ATTENTION = frozenset("q_rotary k_rotary scores softmax values o_proj k_cache v_cache".split())
"""Lines of attention that CCA also has."""


@record(kw_only=True)
class MLPRoutedExperts(Experts):
    """Experts whose router is an MLP of `router_width` (ZayaRouter): a projection, an RMSNorm, and three matmuls.

    If it `follows`, the router state of the previous layer, times learned factors, is added to the projection.
    """

    router_width: Size
    router_eps: float
    follows: bool

    axis_names: ClassVar[dict[str, str]] = {**Experts.axis_names, "router_width": "Rr"}
    label: ClassVar[str] = "experts"
    legend: ClassVar[dict[str, str]] = {
        **Experts.legend,
        "Rr": "width of the router's MLP",
        "Rm": "numbers in the middle of a router's MLP, as many as Rr",
    }
    made: ClassVar[dict[str, str]] = {**Experts.made, "Rm": "Rr"}

    def _router(self, at: str, choices: str) -> Iterator[Line]:
        yield Matmul(f"{at}.down_proj", "B T D, D Rr -> B T Rr", bias=True)
        if self.follows:
            yield Pointwise(f"{at}.follow", "B T Rr", weight="Rr")
        yield Pointwise(f"{at}.norm", "B T Rr", weight="Rr", kind="norm_rms")
        yield Matmul(f"{at}.fc1", "B T Rr, Rr Rm -> B T Rm", bias=True)
        yield Pointwise(f"{at}.act1", "B T Rm", kind="activation", function="gelu")
        yield Matmul(f"{at}.fc2", "B T Rm, Rm Rr -> B T Rr", bias=True)
        yield Pointwise(f"{at}.act2", "B T Rr", kind="activation", function="gelu")
        yield Matmul(f"{at}.out_proj", f"B T Rr, Rr {choices} -> B T {choices}")


class Zaya(DecoderBase):
    """ZAYA1: attention with convolutions on queries and keys; experts, with an MLP router that also reads the router
    state of the previous layer."""

    vocab_size: PositiveInt = 262272
    hidden_size: PositiveInt = 2048
    num_hidden_layers: LayerCount = 40
    num_attention_heads: PositiveInt = 8
    num_key_value_heads: PositiveInt = 2
    head_dim: PositiveInt = 128
    hidden_act: StrictStr = "silu"
    max_position_embeddings: PositiveInt = 131072
    rms_norm_eps: PositiveFloat = 1e-5
    tie_word_embeddings: StrictBool = True
    rope_parameters: JsonDict | None = None
    sliding_window: PositiveInt | None = None
    layer_types: LayerTypes | None = None
    attention_bias: StrictBool = False
    lm_head_bias: StrictBool = False
    moe_intermediate_size: PositiveInt = 2048
    num_experts: PositiveInt = 16
    num_experts_per_tok: PositiveInt = 1
    router_hidden_size: PositiveInt = 256
    cca_time0: PositiveInt = 2
    cca_time1: PositiveInt = 2

    required_values = {"num_experts_per_tok": 1}
    reference_only = "-num_experts_per_tok"
    dropouts = {"attention": ("attention_dropout", 0.0)}
    constant_axes = frozenset(("A", "Ez"))
    task_heads = {"ForCausalLM": CAUSAL_MODEL}
    module_names = {"embed": "model.embed_tokens", "final_norm": "model.norm", "lm_head": "lm_head"}
    layer_module_names = {
        "attn_norm": "input_layernorm",
        **attention_modules("self_attn"),
        **submodules("attn", QKV, "q_proj k_proj", v_proj="v_proj_current", late_v_proj="v_proj_delayed"),
        **submodules("attn", QKV, conv="conv_qk_depthwise", conv_again="conv_qk_depthwise"),
        "attn.mixing_conv": f"{QKV}.conv_qk_grouped",
        "mlp_norm": "post_attention_layernorm",
        "mlp.router.down_proj": f"{ROUTER}.down_proj",
        **submodules("mlp.router", f"{ROUTER}.router_mlp", "norm fc1 fc2 out_proj"),
        **submodules("mlp.experts", "mlp.experts", gate_proj="", up_proj="", down_proj=""),
    }
    tensor_names = {
        "embed.shift.weight": "model.input_hidden_states_scale",
        "embed.shift.bias": "model.input_hidden_states_bias",
    }
    layer_tensor_names = {
        **EXPERT_TENSORS,
        "attn.k_factor.weight": "self_attn.qk_norm.temp",
        "mlp.router.follow.weight": f"{ROUTER}.router_states_scale",
        **{
            f"{sublayer}_add.{gate}.{tensor}": f"post_{hf_name}_residual_scale.{what}_{name}"
            for sublayer, hf_name in (("attn", "attention"), ("mlp", "mlp"))
            for gate, what in (("gate", "hidden_states"), ("stream_gate", "residual"))
            for tensor, name in (("weight", "scale"), ("bias", "bias"))
        },
    }
    head_options = dict(bias=attrgetter("lm_head_bias"))
    hf_extra_note = "it computes the delayed values of the first token from zeros"

    def layers(self) -> list[Layer]:
        """The router of the first layer has no router before it."""
        count, window = self.num_hidden_layers, self.sliding_window
        kinds = validated_layer_types(self.layer_types or [FULL] * count, count, (FULL, SLIDING))
        if SLIDING in kinds and window is None:
            raise ConfigError(f"layer {kinds.index(SLIDING)} is {SLIDING}, but sliding_window is null")
        windows = [window if kind == SLIDING else None for kind in kinds]
        return [Layer(window, kind="" if number else "first") for number, window in enumerate(windows)]

    def attention(self, layer: Layer, **overrides: Any) -> Any:
        for name in ("cca_time0", "cca_time1"):
            if getattr(self, name) < 2:
                raise self.refused(name, getattr(self, name))
        kind, given = FULL if layer.window is None else SLIDING, self.rope_parameters
        rope: Any = {"rope_theta": ROPE_THETA[kind], "partial_rotary_factor": 0.5} if given is None else given.get(kind)
        if not isinstance(rope, Mapping):
            raise ConfigError(f"rope_parameters needs an entry for {kind}")
        size = int(self.head_dim * read_partial_rotary_factor(1.0, rope))
        require_even(size, "head_dim · partial_rotary_factor")
        return CCA(
            hidden=self.hidden_size,
            kv_heads=self.num_key_value_heads,
            group=self.divide("num_attention_heads", "num_key_value_heads"),
            half=require_even(self.head_dim) // 2,
            first=self.cca_time0 - 1,
            second=self.cca_time1 - 1,
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            rotary=Rotary(rope.get("rope_theta") or ROPE_THETA[kind], rope),
            rope_dim=None if size == self.head_dim else size,
            window=layer.window,
        )

    def mlp(self, layer: Layer) -> MLPRoutedExperts:
        follows = layer.kind != "first"
        router = {"router_width": self.router_hidden_size, "router_eps": self.rms_norm_eps, "follows": follows}
        return MLPRoutedExperts.of(self.experts(idle=1), **router)

    def block(self, layer: Layer) -> Block:
        parts: Any = self.attention(layer), self.mlp(layer)
        add = AffineResidual(hidden=self.hidden_size)
        return Block(tuple(Sublayer(part, self.norm(), add=add) for part in parts))

    def embedding(self, **overrides: Any) -> Embedding:
        return AffineEmbedding(vocab=self.vocab_size, hidden=self.hidden_size)

    def hf_extra_positions(self, work: Workload) -> Mapping[str, int]:
        """The class computes the delayed values of the first token from zeros."""
        return {"blocks.*.attn.late_v_proj": 1} if work.tokens == work.context else {}
