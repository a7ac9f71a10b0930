"""MiniMax's language models."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Indexer, LightningAttention, QKNorm, Residual
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.record import record
from tfacct.families.decoder import QK_NORMS, AnyAttention, Decoder, ExpertsInEveryLayer, Layer, Window
from tfacct.families.family import mlp_modules, submodules
from tfacct.families.fields import (
    Fraction,
    JsonDict,
    LayerCount,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    read_partial_rotary_factor,
    require_even,
)
from tfacct.families.layer_kinds import (
    FULL,
    Flags,
    LayerTypes,
    MlpLayerTypes,
    check_first_dense,
    layer_kinds,
    validated_layer_types,
)
from tfacct.families.task_heads import DECODER, LABELLING, WITH_IMAGES
from tfacct.ledger.einsum import Mask, Size, chunks, one_by_one
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD, Line, Matmul, Pointwise
from tfacct.ledger.workload import Workload

LINEAR = "linear_attention"


class MiniMax(ExpertsInEveryLayer, Decoder):
    """MiniMax-Text-01 and MiniMax-M1: lightning attention in most layers, softmax attention in the others, experts.
    A sublayer's output is added to the result of its norm, both scaled by constants."""

    sizes = dict(vocab=32000, hidden=4096, mlp=14336, heads=32, kv_heads=8, context=131072)
    defaults = dict(rms_norm_eps=1e-5, rope_theta=1_000_000.0)
    num_hidden_layers: LayerCount = 32
    sliding_window: Window | None = None
    layer_types: LayerTypes | None = None
    block_size: PositiveInt = 256
    full_attn_alpha_factor: PositiveFloat = 1
    full_attn_beta_factor: PositiveFloat = 1
    linear_attn_alpha_factor: PositiveFloat = 1
    linear_attn_beta_factor: PositiveFloat = 1
    mlp_alpha_factor: PositiveFloat = 1
    mlp_beta_factor: PositiveFloat = 1

    null_means = {"head_dim": "hidden_size / num_attention_heads"}
    task_heads = LABELLING
    layer_module_names = {
        "lightning_norm": "input_layernorm",
        **submodules("lightning", "self_attn", "out_proj", gate_proj="output_gate", out_norm="norm"),
        **submodules("lightning", "self_attn", q_proj="qkv_proj", k_proj="qkv_proj", v_proj="qkv_proj"),
        **submodules("lightning", "self_attn", chunk_scores="", chunk_values="", read_out=""),
        **submodules("lightning", "self_attn", state_read="", state_write=""),
    }
    hf_extra_note = (
        "it does not pad chunks of lightning attention, and runs cached steps token by token, each with an extra matmul"
    )

    def check(self) -> None:
        require_even(self.head_dim)  # the class makes a rotary embedding even if no layer uses it
        super().check()

    def layer_kinds(self) -> list[str]:
        """The kind of each layer. Raises ConfigError."""
        given, count = self.layer_types, self.num_hidden_layers
        return layer_kinds(given, count, lambda number: LINEAR if number % 2 else FULL, (FULL, LINEAR))

    def layers(self) -> list[Layer]:
        found = [Layer(kind=kind) for kind in self.layer_kinds()]
        self.require({"sliding_window": None})
        return found

    def block(self, layer: Layer) -> Block:
        mixer: Any = self.attention(layer) if layer.kind == FULL else self.lightning()
        name = "full_attn" if layer.kind == FULL else "linear_attn"
        return Block((self.sublayer(mixer, name), self.sublayer(self.experts(), "mlp")))

    def lightning(self) -> LightningAttention:
        return LightningAttention(
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            head_dim=self.head_dim,
            activation=self.activation,
            chunk=self.block_size,
        )

    def sublayer(self, part: Any, name: str) -> Sublayer:
        stream, factor = getattr(self, f"{name}_alpha_factor"), getattr(self, f"{name}_beta_factor")
        add = Residual(hidden=self.hidden_size, factor=factor, stream=stream)
        return Sublayer(part, self.norm(), add=add, normed=True)

    def hf_extra_flops(self, work: Workload) -> Mapping[str, int]:
        """Additional FLOPs of the class, because it does not pad chunks and runs later tokens one by one, minus what is
        counted."""
        if LINEAR not in self.layer_kinds():
            return {}
        size, chunk = self.head_dim, self.block_size
        tokens, context = work.tokens, work.context
        counted = chunks(tokens, context, chunk) * (2 * chunk**2 + 2 * chunk * size)
        counted += one_by_one(tokens, context) * size
        run = 2 * tokens * size
        if tokens == context:
            full, rest = divmod(tokens, chunk)
            run += 2 * (full * chunk**2 + rest**2)
        more = FLOPS_PER_MULTIPLY_ADD * work.batch * self.num_attention_heads * size * (run - counted)
        return {"blocks.*.lightning.state_read": more}


M1_FACTORS = {
    f"layernorm_{part}_{which}": f"{kind}_{which}_factor"
    for part, kind in (("full_attention", "full_attn"), ("linear_attention", "linear_attn"), ("mlp", "mlp"))
    for which in ("alpha", "beta")
}
"""Factors by their names in published files of MiniMax-M1 → their names in the class."""


class MiniMaxM1(MiniMax):
    """MiniMax-M1 with the field names of its published files."""

    attn_type_list: Flags
    rotary_dim: PositiveInt | None = None
    shared_intermediate_size: NonNegativeInt = 0
    postnorm: StrictBool = True

    class_prefixes = ("MiniMaxM1", "MiniMax")
    hf_model_type = "minimax"
    required_values = {"shared_intermediate_size": 0, "postnorm": True}
    attribute_map = M1_FACTORS
    ignored_fields = "shared_moe_mode"
    task_heads = DECODER

    def layer_kinds(self) -> list[str]:
        """The kind of each layer, by attn_type_list, which may be longer than the model. Raises ConfigError."""
        given, count = self.attn_type_list, self.num_hidden_layers
        if len(given) < count:
            raise self.refused("attn_type_list", given)
        kinds = [FULL if softmax else LINEAR for softmax in given[:count]]
        self.require_if_given({"layer_types": kinds})
        return kinds

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        if self.rotary_dim is None:
            return super().attention(layer)
        return super().attention(layer, rope_dim=require_even(min(self.rotary_dim, self.head_dim), "rotary_dim"))

    def hf_config_fields(self) -> Mapping[str, Any]:
        """Kinds of layers and factors, with the names of the class."""
        return {"layer_types": self.layer_kinds(), **{name: getattr(self, name) for name in M1_FACTORS.values()}}


class MiniMaxText01(MiniMaxM1):
    """MiniMax-Text-01 with the field names of its published files, those of MiniMax-M1."""

    class_prefixes = ("MiniMaxText01", "MiniMax")


class MiniMaxM2(ExpertsInEveryLayer, Decoder):
    """MiniMax-M2: softmax attention with norms over all queries and all keys; rotary embedding on part of each head;
    experts in every layer."""

    sizes = dict(vocab=200064, hidden=3072, mlp=1536, layers=62, heads=48, kv_heads=8, head_dim=128, context=196608)
    defaults = dict(rope_theta=5_000_000.0, num_local_experts=256, num_experts_per_tok=8)
    rotary_dim: PositiveInt | None = None
    partial_rotary_factor: Fraction | None = None
    attn_type_list: Flags | None = None

    reference_only = "attn_type_list rotary_dim"
    ignored_fields = """use_qk_norm qk_norm_type scoring_func use_routing_bias layernorm_full_attention_beta
        layernorm_linear_attention_beta layernorm_mlp_beta mlp_intermediate_size shared_moe_mode"""
    layer_module_names = QK_NORMS
    qk_norm = QKNorm(0, together=True)
    partial_rotary = True

    def check(self) -> None:
        if self.attn_type_list is not None and not all(self.attn_type_list):  # 0: lightning attention
            raise self.refused("attn_type_list", self.attn_type_list)

    def rotary_size(self, layer: Any = None) -> int:
        """By rotary_dim, unless partial_rotary_factor is given."""
        given = self.partial_rotary_factor
        if given is None and "partial_rotary_factor" not in (self.rope_parameters or {}):
            size = self.rotary_dim or self.head_dim
            if size > self.head_dim:
                raise ConfigError(f"rotary_dim = {size:,}, but a head has head_dim = {self.head_dim:,} elements")
            return require_even(size, "rotary_dim =")
        part = read_partial_rotary_factor(given or 1.0, self.rope_parameters)
        return require_even(int(self.head_dim * part), "partial_rotary_factor · head_dim =")


SPARSE = "minimax_m3_sparse"
OF_INDEXER: Mapping[str, str] = {
    "sparse_num_index_heads": "index_n_heads",
    "sparse_index_dim": "index_head_dim",
    "sparse_block_size": "index_block_size",
    "sparse_topk_blocks": "index_topk_blocks",
    "sparse_local_block": "index_local_blocks",
}
"""Sizes in sparse_attention_config → the fields that they override."""
EXPERT_FIELDS = {"num_local_experts", "num_experts_per_tok", "intermediate_size", "shared_intermediate_size"}
"""Fields that only matter if a layer has experts."""
FREQUENCY = "sparse_attention_freq"
UNCOUNTED = frozenset(("use_sparse_attention", "sparse_score_type", "sparse_init_block", "sparse_disable_index_value"))


@record(kw_only=True)
class BlockIndexer(Indexer):
    """Selects the `top` blocks of `size` keys by their best key, separately for each indexer head. The last `local`
    blocks, up to that of the query, are always selected. Each query head follows an indexer head. `keys`: top · size.
    transformers' class masks the other keys, so no matmul depends on the selection."""

    size: Size
    local: int = 1
    keys: Size

    axis_names: ClassVar[dict[str, str]] = {"heads": "Nx", "head_dim": "Hx", "keys": "Sx"}

    def _queries(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.q_proj", "B T D, D Nx Hx -> B T Nx Hx")
        yield Pointwise(f"{at}.q_norm", "B T Nx Hx", weight="Hx", kind="norm_rms")

    def _keys(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.k_proj", "B T D, D Hx -> B T Hx")
        yield Pointwise(f"{at}.k_norm", "B T Hx", weight="Hx", kind="norm_rms")

    def _ranked(self, at: str, keys: str = "S", mask: Mask = "causal") -> Iterator[Line]:
        yield Matmul(f"{at}.scores", f"B T Nx Hx, B {keys} Hx -> B Nx T {keys}", mask=mask)


class MiniMaxM3VL(ExpertsInEveryLayer, Decoder):
    """MiniMax-M3's language model: attention to blocks of keys selected by an indexer, experts with a shared expert."""

    sizes = dict(vocab=200064, hidden=6144, mlp=3072, layers=60, heads=64, kv_heads=4, head_dim=128, context=524288)
    defaults = dict(rope_theta=5_000_000.0, num_local_experts=128, num_experts_per_tok=4)
    dense_intermediate_size: PositiveInt = 12288
    shared_intermediate_size: PositiveInt = 3072
    rotary_dim: PositiveInt | None = None
    partial_rotary_factor: Fraction | None = None
    mlp_layer_types: MlpLayerTypes | None = None
    moe_layer_freq: Flags | None = None
    first_k_dense_replace: NonNegativeInt | None = None
    moe_intermediate_size: PositiveInt | None = None
    layer_types: LayerTypes | None = None
    sparse_attention_config: JsonDict | None = None
    index_n_heads: PositiveInt = 4
    index_head_dim: PositiveInt = 128
    index_block_size: PositiveInt = 128
    index_topk_blocks: PositiveInt = 16
    index_local_blocks: NonNegativeInt = 1

    class_prefixes = ("MiniMaxM3VL", "MiniMaxM3VLText", "MiniMaxM3Sparse", "MiniMaxM3")
    reference_only = """-sparse_attention_config rotary_dim index_block_size index_topk_blocks index_local_blocks
        first_k_dense_replace moe_intermediate_size"""
    ignored_fields = """routed_scaling_factor swiglu_alpha swiglu_limit scoring_func use_routing_bias use_qk_norm
        qk_norm_type use_gemma_norm n_shared_experts attention_output_gate"""
    task_heads = WITH_IMAGES
    layer_module_names = {
        **mlp_modules("mlp", up="gate_up_proj", gate="gate_up_proj"),
        **mlp_modules("mlp.shared_experts", up="gate_up_proj", gate="gate_up_proj", at="mlp.shared"),
        **QK_NORMS,
        **submodules("attn.indexer", "self_attn.indexer", "q_proj k_proj q_norm k_norm", scores=""),
    }
    all_layers_have_experts = False
    partial_rotary = norm_weight_minus_one = True
    activation = "swigluoai"
    mlp_options = dict(width=attrgetter("dense_intermediate_size"))
    experts_options = dict(shared=attrgetter("shared_intermediate_size"), shared_first=True)

    def unread_fields(self) -> set[str]:
        """Also those that sparse_attention_config gives."""
        routed, sparse = self.moe_layers(), any(self.sparse_layers())
        unread = {name for name in OF_INDEXER.values() if not sparse or name in self.indexer_sizes()}
        if not any(routed):
            unread |= EXPERT_FIELDS
        if all(routed):
            unread.add("dense_intermediate_size")
        return unread

    def indexer_sizes(self) -> dict[str, Any]:
        """Sizes of the indexer in sparse_attention_config, and its list of layers. Raises ConfigError."""
        found: dict[str, Any] = {}
        for name, value in (self.sparse_attention_config or {}).items():
            if name in UNCOUNTED:
                continue
            is_int = isinstance(value, int) and not isinstance(value, bool)
            if name in OF_INDEXER and is_int and value >= (0 if name == "sparse_local_block" else 1):
                found[OF_INDEXER[name]] = value
            elif name == FREQUENCY and isinstance(value, Sequence) and all(one in (0, 1) for one in value):
                found[FREQUENCY] = value
            else:
                raise self.refused(f"sparse_attention_config.{name}", value)
        return found

    def sparse_layers(self) -> list[bool]:
        """True for each layer with an indexer. Raises ConfigError."""
        given, listed = self.layer_types, self.indexer_sizes().get(FREQUENCY)
        if given is None and listed is not None:
            given = [SPARSE if one else FULL for one in listed]
        if given is None:
            return [False] * self.num_hidden_layers
        return [kind == SPARSE for kind in validated_layer_types(given, self.num_hidden_layers, (FULL, SPARSE))]

    def moe_layers(self) -> list[bool]:
        """True for each layer with experts. Raises ConfigError."""
        given: list[str] | None = self.mlp_layer_types
        if given is None and self.moe_layer_freq is not None:
            given = ["sparse" if one else "dense" for one in self.moe_layer_freq]
        if given is None:
            return [True] * self.num_hidden_layers
        kinds = validated_layer_types(given, self.num_hidden_layers, ("dense", "sparse"), "mlp_layer_types")
        check_first_dense(self.first_k_dense_replace, [kind == "sparse" for kind in kinds])
        return [kind == "sparse" for kind in kinds]

    def rotary_size(self, layer: Any = None) -> int:
        """Rotary dimensions of a head. Raises ConfigError."""
        part = read_partial_rotary_factor(self.partial_rotary_factor or 1.0, self.rope_parameters)
        size = self.rotary_dim if part == 1.0 and self.rotary_dim is not None else int(self.head_dim * part)
        if size > self.head_dim:
            raise ConfigError(f"rotary_dim = {size:,}, but a head has head_dim = {self.head_dim:,} elements")
        return require_even(size, "rotary dimensions of a head:")

    def check(self) -> None:
        # The class does not read it.
        width = self.intermediate_size
        self.agrees("moe_intermediate_size", width, "intermediate_size", ", the width of an expert")

    def layers(self) -> list[Layer]:
        both = zip(self.sparse_layers(), self.moe_layers(), strict=True)
        return [Layer(kind=SPARSE if sparse else "", experts=routed) for sparse, routed in both]

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        """Attention to all keys, or to those selected by an indexer. Raises ConfigError."""
        overrides = {"qk_norm": QKNorm(self.rms_norm_eps, less_one=True)}
        if layer.kind != SPARSE:
            return super().attention(layer, **overrides)
        sizes = {name: self.indexer_sizes().get(name, getattr(self, name)) for name in OF_INDEXER.values()}
        heads, size = sizes["index_n_heads"], sizes["index_head_dim"]
        if self.num_attention_heads % heads:
            raise ConfigError(f"num_attention_heads={self.num_attention_heads:,} must be a multiple of {heads:,}")
        if size < self.rotary_size():
            raise ConfigError(
                f"index_head_dim = {format_value(size)} must be at least {self.rotary_size():,}, the rotary"
                " dimensions of a head"
            )
        top, local = sizes["index_topk_blocks"], sizes["index_local_blocks"]
        block = sizes["index_block_size"]
        indexer = BlockIndexer(heads=heads, head_dim=size, size=block, top=top, local=local, keys=top * block)
        return super().attention(layer, **overrides, indexer=indexer)
