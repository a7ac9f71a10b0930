"""Decoders like Llama: RMSNorm, rotary embedding, grouped-query attention, a gated MLP or experts.

A family declares what differs: its fields, the layer pattern (`layers`), and the attention, MLP or block of one layer.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import Field

from tfacct.architecture.blocks import Block, Sublayer, stacks
from tfacct.architecture.parts import (
    Attention,
    Embedding,
    Experts,
    FeedForward,
    Head,
    LatentAttention,
    Norm,
    QKNorm,
    Residual,
    Rotary,
)
from tfacct.architecture.transformer import Transformer
from tfacct.families.family import Family, attention_modules, mlp_modules, submodules
from tfacct.families.fields import (
    Fraction,
    JsonDict,
    LayerCount,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    divide_exactly,
    int_between,
    read_partial_rotary_factor,
    read_rope,
    require_even,
)
from tfacct.families.layer_kinds import check_top_k, layer_windows, rope_parameters_by_kind, sparse_layers
from tfacct.families.task_heads import DECODER

Window = Annotated[int, int_between(2)]
QK_NORMS = submodules("attn", "self_attn", "q_norm k_norm")
QK_LAYERNORMS = submodules("attn", "self_attn", q_norm="q_layernorm", k_norm="k_layernorm")
QK_NORM_SWITCHES = ("qk_layernorm", "use_qk_norm")
NORMS_AROUND = {
    "attn_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
NORMS_AFTER = {name: hf_name for name, hf_name in NORMS_AROUND.items() if name != "mlp_norm"}
SINK_MODULES, SINK_TENSORS = {"attn.sinks": "self_attn"}, {"attn.sinks.weight": "self_attn.sinks"}


def expert_modules(module: str = "mlp", router: str = "gate") -> dict[str, str]:
    """Modules of experts: their router, and one module for all of them."""
    experts = submodules("mlp.experts", f"{module}.experts", gate_proj="", up_proj="", down_proj="")
    return {"mlp.router": f"{module}.{router}", **experts}


def expert_tensors(module: str = "mlp") -> dict[str, str]:
    """Experts, stored as two tensors for all of them."""
    return {
        "mlp.experts.gate_proj.weight": f"{module}.experts.gate_up_proj",
        "mlp.experts.up_proj.weight": f"{module}.experts.gate_up_proj",
        "mlp.experts.down_proj.weight": f"{module}.experts.down_proj",
    }


EXPERT_MODULES, EXPERT_TENSORS = expert_modules(), expert_tensors()


def default_head_dim(fields: dict[str, Any]) -> int:
    """hidden_size / num_attention_heads, the class default if head_dim is absent."""
    hidden, heads = fields["hidden_size"], fields["num_attention_heads"]
    return divide_exactly(
        hidden, heads, "hidden_size by num_attention_heads", "give head_dim, or choose divisible sizes"
    )


DIVIDED_HEAD_DIM = property(lambda self: self.divide("hidden_size", "num_attention_heads"))
"""head_dim in classes without this field."""


AnyAttention: TypeAlias = Attention | LatentAttention


class Layer(NamedTuple):
    """The properties that differ between layers of a model."""

    window: int | None = None
    experts: bool = False
    rotary: bool = True
    kind: str = ""
    rope_theta: float | None = None
    """Its own base of the rotary embedding."""
    top_k: int | None = None
    """Experts per token, if they differ by layer."""
    heads: int | None = None
    """Query heads, if they differ by layer; the same of its other sizes."""
    kv_heads: int | None = None
    head_dim: int | None = None
    width: int | None = None
    """Width of its MLP."""
    sparsity: float = 0.0
    """Share of its MLP's gate that is set to 0."""
    borrowed: bool = False
    """Whether it reads keys and values, or latents, of an earlier layer."""


def with_experts(layers: Sequence[Layer], routed: Sequence[bool]) -> list[Layer]:
    """The same layers, with experts in those that are `routed`."""
    return [layer._replace(experts=some) for layer, some in zip(layers, routed, strict=True)]


class DecoderBase(Family):
    """The layers of a decoder, without assumptions about the names of its sizes."""

    vocab_size: PositiveInt

    qk_norm: ClassVar[QKNorm | None] = None
    """Norms of queries and keys; eps comes from the config, which may switch them off (`QK_NORM_SWITCHES`)."""
    norms: ClassVar[Any] = "before"
    """Where a sublayer has its norm: before, after or around it."""
    embedding_norm: ClassVar[bool] = False
    """Whether a norm follows the embeddings."""
    order: ClassVar[Any] = "pre"
    """Sublayers after one another, with norms before (`pre`) or after (`post`) each sum, or in `parallel`."""
    shares_norm: ClassVar[Any] = False
    """Whether attention and MLP, in parallel, read the result of one norm."""
    norm_kind: ClassVar[Literal["rms", "layer"]] = "rms"
    norm_learned: ClassVar[Any] = "both"
    """What LayerNorms learn: scale and shift (`both`), the scale alone, or none."""
    norm_weight_minus_one: ClassVar[bool] = False
    """The stored weight of a norm is its scale minus 1."""
    eps_field: ClassVar[str] = "rms_norm_eps"
    mlp_gated: ClassVar[bool] = True
    heads_fill_hidden_size: ClassVar[bool] = False
    """The class cannot run another head_dim than hidden_size / num_attention_heads."""
    grouped_queries: ClassVar[bool] = True
    """False if the class has a key/value head for every query head."""
    head_names: ClassVar[str] = ""
    """Query heads by key/value heads in errors, if layers differ in either."""
    rope_pairs: ClassVar[Literal["halves", "neighbours"]] = "halves"
    """Which two elements of a head rotate together: one of each half, or neighbours."""
    partial_rotary: ClassVar[bool] = False
    """A part of each head has a rotary embedding, by `rotary_size`. It is even; a head may have an odd size."""
    rope_by_kind: ClassVar[Mapping[str, Mapping[str, Any]] | None] = None
    """rope_parameters of layers with and without a window, if a config has none. None: all layers share theirs."""
    all_layers_have_experts: ClassVar[bool] = False
    expert_count: ClassVar[str] = "num_experts"
    """The field that has the number of experts."""
    shared_expert_count: ClassVar[str] = ""
    """The field that has the number of shared experts, which are one MLP as wide as these, if there is one."""
    expert_width: ClassVar[str] = "moe_intermediate_size"
    """The field that has the width of an expert."""
    expert_top_k: ClassVar[str] = "num_experts_per_tok"
    """The field that has the number of experts per token."""

    def check(self) -> None:
        super().check()
        if self.heads_fill_hidden_size and self.head_dim * self.num_attention_heads != self.hidden_size:
            raise self.refused("head_dim", self.head_dim)
        if not self.grouped_queries:
            self.require({"num_key_value_heads": self.num_attention_heads})

    context = property(attrgetter("max_position_embeddings"))
    activation = property(attrgetter("hidden_act"))
    residual_factor: ClassVar[Any] = None
    """Factor of sublayer outputs before they are added to the residual stream."""

    def rope(self) -> Rotary:
        """Rotary embedding, in the format of transformers 4 or 5."""
        return read_rope(self.rope_theta, self.rope_scaling, self.rope_parameters)._replace(pairs=self.rope_pairs)

    def layer_rope_parameters(self, layer: Any) -> Mapping[str, Any] | None:
        """rope_parameters of one layer. Raises ConfigError."""
        parameters: Mapping[str, Any] | None = self.rope_parameters
        kinds = self.rope_by_kind
        return parameters if kinds is None else rope_parameters_by_kind(parameters, kinds, layer.window)

    def layer_rope(self, layer: Any) -> Rotary | None:
        """Rotary embedding of one layer. Raises ConfigError."""
        if self.rope_by_kind is None:
            return self.rope()._replace(base=layer.rope_theta) if layer.rope_theta else self.rope()
        parameters = self.layer_rope_parameters(layer) or {}
        return Rotary(parameters.get("rope_theta") or 10_000.0, parameters)

    def rotary_size(self, layer: Any = None) -> int:
        """Elements of a head with rotary embedding, by partial_rotary_factor. Raises ConfigError."""
        part = read_partial_rotary_factor(self.partial_rotary_factor, self.layer_rope_parameters(layer))
        return require_even(int(self.head_dim * part), "partial_rotary_factor · head_dim =")

    def norm(self) -> Norm:
        """RMSNorm or LayerNorm over the hidden size."""
        return Norm(
            hidden=self.hidden_size,
            eps=getattr(self, self.eps_field),
            learned=self.norm_learned,
            kind=self.norm_kind,
            less_one=self.norm_weight_minus_one,
        )

    def post_norm(self) -> Norm:
        """Norm after a sublayer."""
        return self.norm()

    def layers(self) -> Sequence[Any]:
        """One `Layer` per layer, in order. Raises ConfigError."""
        return [Layer()] * self.num_hidden_layers

    def windows(self, default: Any, window: int | None, switch: str = "") -> list[int | None]:
        """The window of each layer, by layer_types or by default. Raises ConfigError."""
        return layer_windows(self.layer_types, self.num_hidden_layers, window, default, switch)

    def head_sizes(self, layer: Any) -> dict[str, int]:
        """Key/value heads, query heads that share one, and the size of a head. Raises ConfigError."""
        kv_heads = layer.kv_heads or self.num_key_value_heads
        if self.head_names:
            group = divide_exactly(layer.heads or self.num_attention_heads, kv_heads, self.head_names)
        else:
            group = self.divide("num_attention_heads", "num_key_value_heads")
        size = self.head_dim if self.partial_rotary else require_even(self.head_dim)
        return {"kv_heads": kv_heads, "group": group, "head_dim": size}

    def attention(self, layer: Any, **overrides: Any) -> AnyAttention:
        """Grouped-query attention; attention_bias adds biases to its projections, attention_out_bias to the output
        projection."""
        how: dict[str, Any] = {"rope_dim": self.rotary_size(layer)} if self.partial_rotary else {}
        biased = getattr(self, "attention_bias", False)
        qk_norm = self.qk_norm if all(getattr(self, name, True) for name in QK_NORM_SWITCHES) else None
        how |= {
            **self.head_sizes(layer),
            "window": layer.window,
            "qkv_bias": biased,
            "out_bias": getattr(self, "attention_out_bias", biased),
            "qk_norm": qk_norm and qk_norm._replace(eps=getattr(self, self.eps_field)),
            "rotary": self.layer_rope(layer) if layer.rotary else None,
        }
        how |= self.options("attention", **overrides)
        return Attention(hidden=self.hidden_size, **how)

    def mlp(self, layer: Any) -> FeedForward | Experts:
        """A dense MLP or experts."""
        if self.all_layers_have_experts or layer.experts:
            return self.experts()
        return self.dense_mlp(**({"width": layer.width} if layer.width else {}))

    def dense_mlp(self, **overrides: Any) -> FeedForward:
        """An MLP, with biases if mlp_bias is set."""
        how: dict[str, Any] = {
            "gated": self.mlp_gated,
            "bias": getattr(self, "mlp_bias", False),
            "activation": self.activation,
        }
        how |= self.options("mlp", **overrides)
        return FeedForward(hidden=self.hidden_size, width=how.pop("width", None) or self.intermediate_size, **how)

    def experts(self, **overrides: Any) -> Experts:
        """Experts, and shared experts if the class has them. Raises ConfigError."""
        fields = {"experts": self.expert_count, "active": self.expert_top_k, "width": self.expert_width}
        sizes = {name: getattr(self, field) for name, field in fields.items()}
        how = {**sizes, "activation": self.activation, **self.options("experts", **overrides)}
        check_top_k(how["active"], how["experts"], (fields["active"], fields["experts"]))
        if self.shared_expert_count and "shared" not in how:
            how["shared"] = getattr(self, self.shared_expert_count) * how["width"] or None
        return Experts(hidden=self.hidden_size, **how)

    def block(self, layer: Any) -> Block:
        """One layer."""
        before = self.norm() if self.norms != "after" else None
        after = self.post_norm() if self.norms != "before" else None
        attention, mlp = self.attention(layer), self.mlp(layer)
        factor = self.residual_factor
        add = None if factor is None else Residual(hidden=self.hidden_size, factor=factor)
        first = Sublayer(attention, before, after, add)
        second = Sublayer(mlp, None if self.shares_norm else before, after, add)
        return Block((first, second), self.order)

    def architecture(self) -> Transformer:
        """All layers, between embedding and head."""
        self.check()
        layers = self.layers()
        blocks = {layer: self.block(layer) for layer in dict.fromkeys(layers)}
        return self.assemble([blocks[layer] for layer in layers])

    def assemble(self, blocks: Sequence[Block], **overrides: Any) -> Transformer:
        """These layers, between embedding and head."""
        return Transformer(stacks=stacks(blocks), **{**self.embeddings_and_head(), **overrides})

    def embeddings_and_head(self) -> dict[str, Any]:
        """The parts before and after the layers."""
        first = self.norm() if self.embedding_norm else None
        return {"embed": self.embedding(), "embed_norm": first, "final_norm": self.norm(), "head": self.head()}

    def embedding(self, **overrides: Any) -> Embedding:
        """Embedding of tokens."""
        return Embedding(vocab=self.vocab_size, hidden=self.hidden_size, **self.options("embedding", **overrides))

    def head(self, **overrides: Any) -> Head:
        """The language model's head."""
        overrides = self.options("head", **overrides)
        return Head(vocab=self.vocab_size, hidden=self.hidden_size, tied=self.tie_word_embeddings, **overrides)


class MoeWithShared(DecoderBase):
    """Experts, and one MLP as wide as several of them for every token; dense MLPs in some layers."""

    expert_count, shared_expert_count = "n_routed_experts", "n_shared_experts"
    layer_module_names = {**EXPERT_MODULES, **mlp_modules("mlp.shared_experts", at="mlp.shared")}
    layer_tensor_names = EXPERT_TENSORS

    def moe_layers(self) -> list[bool]:
        """True for each layer with experts: by mlp_layer_types, or all after the first dense ones, by default one.
        Raises ConfigError."""
        given, first = getattr(self, "mlp_layer_types", None), getattr(self, "first_k_dense_replace", None)
        count, step = self.num_hidden_layers, getattr(self, "moe_layer_freq", 1)
        if given is not None or first is None:
            return sparse_layers(given, count)
        return [number >= first and number % step == 0 for number in range(count)]

    def layers(self) -> list[Layer]:
        return with_experts(super().layers(), self.moe_layers())


class SharedExperts(MoeWithShared):
    """The same with DeepSeek's router, which first selects groups of experts."""

    moe_intermediate_size: PositiveInt
    num_experts_per_tok: PositiveInt = 8

    ignored_fields = "n_group topk_group routed_scaling_factor"


class ExpertsInEveryLayer(DecoderBase):
    """Experts with Mixtral's names in every layer. intermediate_size is the width of one."""

    num_local_experts: PositiveInt = 8
    num_experts_per_tok: PositiveInt = 2

    attribute_map = {"num_experts": "num_local_experts"}
    layer_module_names, layer_tensor_names = EXPERT_MODULES, EXPERT_TENSORS
    all_layers_have_experts = True
    expert_count, expert_width = "num_local_experts", "intermediate_size"


class Decoder(DecoderBase):
    """The fields that Llama and its relatives share."""

    hidden_size: PositiveInt
    num_hidden_layers: LayerCount
    num_attention_heads: PositiveInt
    intermediate_size: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt = Field(default_factory=default_head_dim)
    max_position_embeddings: PositiveInt
    tie_word_embeddings: StrictBool = False
    hidden_act: StrictStr = "silu"
    rms_norm_eps: PositiveFloat = 1e-6
    rope_theta: PositiveFloat | None = None
    rope_scaling: JsonDict | None = None
    rope_parameters: JsonDict | None = None

    dropouts = {"attention": ("attention_dropout", 0.0)}
    task_heads = DECODER
    module_names = {"embed": ".embed_tokens", "final_norm": ".norm", "lm_head": "lm_head"}
    layer_module_names = {
        "attn_norm": "input_layernorm",
        **attention_modules("self_attn"),
        "mlp_norm": "post_attention_layernorm",
        **mlp_modules("mlp"),
    }


class PartialRotaryDecoder(Decoder):
    """Rotary embedding of a part of each head."""

    partial_rotary_factor: Fraction
    partial_rotary = True
