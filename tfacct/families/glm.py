"""GLM's language models, and Solar Open."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, ClassVar

from tfacct.architecture.parts import DeltaNet, HyperMean, Indexer, QKNorm
from tfacct.architecture.parts.indexer import LEGEND as INDEXER_LEGEND
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.decoder import QK_NORMS, AnyAttention, Layer, PartialRotaryDecoder
from tfacct.families.family import mlp_modules
from tfacct.families.fields import NonNegativeInt, PositiveInt, StrictBool, read_partial_rotary_factor
from tfacct.families.hybrid import LINEAR, LowRankKimiDeltaDecoder
from tfacct.families.hyper_connections import PUBLISHED_HYPER_CONNECTIONS, HyperConnected, hyper_modules, hyper_tensors
from tfacct.families.layer_kinds import FULL, MlpLayerTypes, check_first_dense, sparse_layers, validated_layer_types
from tfacct.families.mla import (
    INDEXED,
    REUSED,
    DsaDecoder,
    IndexerTypes,
    MlaDecoder,
    RoutedExperts,
    check_first_indexer,
)
from tfacct.families.task_heads import LABELLING, inside_composite
from tfacct.ledger.einsum import Mask, Size
from tfacct.ledger.lines import RATES, Line, Matmul, Pointwise
from tfacct.ledger.workload import COMPRESSED


class Glm(PartialRotaryDecoder):
    """GLM-4-9B: Llama's layer with biases on q, k and v; half of each head has a rotary embedding."""

    sizes = dict(vocab=151552, hidden=4096, mlp=13696, layers=40, heads=32, kv_heads=2, head_dim=128, context=131072)
    defaults = dict(partial_rotary_factor=0.5, rms_norm_eps=1.5625e-07)
    attention_bias: StrictBool = True
    task_heads = LABELLING
    layer_module_names = mlp_modules("mlp", up="gate_up_proj", gate="gate_up_proj")
    rope_pairs, attention_out_bias = "neighbours", False


class Glm4(Glm):
    """GLM-4-0414: GLM-4-9B's layer, with norms before and after attention and MLP."""

    layer_module_names = {"attn_post_norm": "post_self_attn_layernorm", "mlp_post_norm": "post_mlp_layernorm"}
    norms = "around"


class Glm4Moe(RoutedExperts, PartialRotaryDecoder):
    """GLM-4.5: Llama's attention, half of each head with a rotary embedding; dense layers first, then experts and a
    shared expert."""

    sizes = dict(vocab=151552, hidden=4096, mlp=10944, layers=46, heads=96, kv_heads=8, context=131072)
    defaults = dict(partial_rotary_factor=0.5, rms_norm_eps=1e-5, moe_intermediate_size=1408, n_routed_experts=128)
    attention_bias: StrictBool = False
    use_qk_norm: StrictBool = False
    first_k_dense_replace: NonNegativeInt = 1
    checkpoint_conversion_mapping = (  # Ling's
        (r"^model\.word_embeddings\.", "model.embed_tokens."),
        (r"\.attention\.query_key_value\.", ".self_attn.qkv_proj."),
        (r"\.attention\.dense\.", ".self_attn.o_proj."),
        (r"\.attention\.query_layernorm\.", ".self_attn.q_norm."),
        (r"\.attention\.key_layernorm\.", ".self_attn.k_norm."),
    )
    layer_module_names = QK_NORMS
    qk_norm, attention_out_bias = QKNorm(0), False


class Glm4MoeLite(RoutedExperts, MlaDecoder):
    """GLM-4.7-Flash: DeepSeek-V3's latent attention; a dense layer, then experts and a shared expert."""

    sizes = dict(vocab=154880, hidden=2048, mlp=10240, layers=47, heads=20, kv_heads=20, context=202752)
    defaults = dict(
        rms_norm_eps=1e-5,
        q_lora_rank=768,
        qk_nope_head_dim=192,
        v_head_dim=256,
        moe_intermediate_size=1536,
        num_experts_per_tok=4,
        n_routed_experts=64,
    )
    mlp_layer_types: MlpLayerTypes | None = None
    first_k_dense_replace: NonNegativeInt | None = None
    reference_only = "first_k_dense_replace"
    attribute_map = {"head_dim": "qk_rope_head_dim"}
    ignored_fields = "topk_method"

    def moe_layers(self) -> list[bool]:
        """The class does not read first_k_dense_replace. Raises ConfigError."""
        routed, dense = sparse_layers(self.mlp_layer_types, self.num_hidden_layers), self.first_k_dense_replace
        if dense is not None and routed != [number >= dense for number in range(self.num_hidden_layers)]:
            raise self.refused("first_k_dense_replace", dense)
        return routed


class GlmMoeDsa(DsaDecoder):
    """GLM-5: DeepSeek-V3.2's attention at other sizes; some layers reuse the keys selected by an earlier layer's
    indexer."""

    sizes = dict(vocab=154880, hidden=6144, mlp=12288, layers=78, heads=64, kv_heads=64, context=202752)
    defaults = dict(rms_norm_eps=1e-5, qk_nope_head_dim=192, v_head_dim=256, index_n_heads=32)
    q_lora_rank: PositiveInt = 2048
    indexer_types: IndexerTypes | None = None
    index_topk_freq: PositiveInt = 1
    index_skip_topk_offset: NonNegativeInt = 2
    index_topk_pattern: str | list[str] | None = None
    indexer_options = dict(pairs="neighbours")

    def indexers(self) -> list[bool]:
        return check_first_indexer(self.listed_indexers(), self.num_hidden_layers)

    def listed_indexers(self) -> list[bool]:
        """True for each layer with an indexer, by the fields. Raises ConfigError."""
        pattern = self.index_topk_pattern
        if self.indexer_types is not None:
            return [kind == "full" for kind in self.indexer_types]
        if pattern is not None:
            if not {*pattern} <= ({"F", "S"} if isinstance(pattern, str) else {"full", "shared"}):
                raise self.refused("index_topk_pattern", pattern)
            return [kind in ("F", "full") for kind in pattern]
        step, first = self.index_topk_freq, self.index_skip_topk_offset
        return [max(number - first + 1, 0) % step == 0 for number in range(self.num_hidden_layers)]


class SolarOpen(RoutedExperts, PartialRotaryDecoder):
    """Solar Open: Llama's attention, and GLM-4.5's experts with a shared expert in every layer."""

    sizes = dict(vocab=196608, hidden=4096, mlp=10240, layers=48, heads=64, kv_heads=8, head_dim=128, context=131072)
    defaults = dict(
        partial_rotary_factor=1.0,
        rope_theta=1_000_000.0,
        rms_norm_eps=1e-5,
        moe_intermediate_size=1280,
        n_routed_experts=128,
    )
    attention_bias: StrictBool = False
    reference_only = "intermediate_size"
    attention_out_bias = False

    def moe_layers(self) -> list[bool]:
        return [True] * self.num_hidden_layers

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        """Attention. Raises ConfigError if a part of a head has no rotary embedding, which the class does not
        support."""
        if self.rotary_size() != self.head_dim:
            part = read_partial_rotary_factor(self.partial_rotary_factor, self.rope_parameters)
            raise self.refused("partial_rotary_factor", part)
        return super().attention(layer, rope_dim=None)


@record(kw_only=True)
class PooledIndexer(Indexer):
    """An indexer over keys computed from `pool` tokens each, recomputed in every step from the keys and weights of all
    tokens. It selects all tokens of a key, and with `tail` also those of an incomplete key. It has no rotary
    embedding."""

    pool: Size
    tail: bool = True

    axis_names: ClassVar[dict[str, str]] = {"heads": "Nx", "head_dim": "Hx", "pool": RATES["light"]}
    legend: ClassVar[dict[str, str]] = {
        **INDEXER_LEGEND,
        RATES["light"]: "tokens per lightly compressed key",
        "Hy": "values that the indexer caches per token: key, weights and a padding mark, 2 · Hx + 1",
    }
    cached: ClassVar[str] = "Hy"
    mask: ClassVar[Mask] = "causal"

    @property
    def cached_dim(self) -> Size:
        """Elements cached per token: key, weights, and a padding mark."""
        return 2 * self.head_dim + 1

    def derived(self) -> dict[str, str]:
        """Cached elements per token."""
        return {} if self.reused else {"Hy": "2 · Hx + 1"}

    def _ranked(self, at: str, keys: str = COMPRESSED["entries"]["light"], mask: Mask = "entries") -> Iterator[Line]:
        rate = RATES["light"]
        yield Matmul(f"{at}.gate_proj", "B T D, D Hx -> B T Hx")
        yield Pointwise(f"{at}.position_bias", f"B {keys} {rate} Hx", bias=f"{rate} Hx")
        yield Pointwise(f"{at}.softmax", f"B {keys} {rate} Hx", kind="softmax")
        yield Pointwise(f"{at}.weighting", f"B {keys} {rate} Hx", kind="weighting")
        yield from Indexer._ranked(self, at, keys, mask)


class Glm5Next(HyperConnected, LowRankKimiDeltaDecoder, GlmMoeDsa):
    """GLM-5.3-Flash: DeltaNet with per-channel decays (KDA) in three layers of four; in the fourth, latent attention
    without rotary embedding to groups of tokens selected by an indexer; several residual streams."""

    sizes = dict(hidden=4096, layers=45, context=1048576)
    defaults = dict(q_lora_rank=1536, qk_nope_head_dim=256, n_routed_experts=288, linear_num_heads=64)
    qk_rope_head_dim: NonNegativeInt = 0
    head_dim: NonNegativeInt | None = None  # type: ignore[assignment]  # the rotary part, as the class writes it
    first_k_dense_replace: NonNegativeInt | None = None  # type: ignore[assignment]
    index_kpool: PositiveInt = 16
    index_kpool_always_select_tail: StrictBool = True
    linear_lower_bound: float | None = -5.0
    hc_sinkhorn_iters: PositiveInt = 20
    class_prefixes = ("Glm5Next", "Glm5NextText")
    reference_only = "first_k_dense_replace index_kpool_always_select_tail hc_sinkhorn_iters"
    ignored_fields = "swiglu_limit mhc"
    checkpoint_conversion_mapping = (LowRankKimiDeltaDecoder.published_forget_gate, PUBLISHED_HYPER_CONNECTIONS)
    task_heads = inside_composite("Glm5NextForConditionalGeneration", "Glm5NextTextModel")
    constant_axes = LowRankKimiDeltaDecoder.constant_axes | {"Xf"}
    layer_module_names = {
        "attn.indexer.gate_proj": "self_attn.indexer",
        **hyper_modules(delta="attn_hc"),
        **{f"hc.{sublayer}.mix": "" for sublayer in ("attn", "delta", "mlp")},
    }
    layer_tensor_names = {
        "attn.indexer.gate_proj.weight": "self_attn.indexer.index_kpool_compress_gate",
        "attn.indexer.position_bias.bias": "self_attn.indexer.index_kpool_compress_ape",
        **hyper_tensors(delta="attn_hc"),
    }
    attention_options = dict(eps=attrgetter("rms_norm_eps"))
    mlp_options = dict(bias=False)  # the class does not read mlp_bias
    indexer_kind = PooledIndexer
    indexer_options = dict(pool=attrgetter("index_kpool"), tail=attrgetter("index_kpool_always_select_tail"))

    def check(self) -> None:
        given = self.linear_attn_config or {}
        known = {*self.size_fields.values(), "gate_lower_bound", "full_attn_layers", "kda_layers", "safe_gate"}
        for name in given:
            if name not in known:
                raise self.refused(f"linear_attn_config.{name}", given[name])
        self.require({"qk_rope_head_dim": 0})
        if self.index_topk % self.index_kpool:
            raise ConfigError(
                f"index_topk: {self.index_topk:,} is not divisible by {self.index_kpool:,}, the tokens of a group"
            )

    def moe_layers(self) -> list[bool]:
        layers = self.num_hidden_layers
        first = [number >= 3 for number in range(layers)]
        routed = first if self.mlp_layer_types is None else sparse_layers(self.mlp_layer_types, layers)
        check_first_dense(self.first_k_dense_replace, routed)
        return routed

    def delta_kinds(self) -> list[str]:
        """The kind of each layer, by layer_types or by default. Raises ConfigError."""
        layers = self.num_hidden_layers
        if self.layer_types is None:
            return [INDEXED[0] if number % 4 == 3 else LINEAR for number in range(layers)]
        return validated_layer_types(self.layer_types, layers, (LINEAR, *INDEXED, FULL))

    def layers(self) -> list[Layer]:
        """The layers. Raises ConfigError if a selection is reused beyond the next layer."""
        layers, indexed = self.num_hidden_layers, self.listed_indexers()
        if len(indexed) < layers:
            raise ConfigError(
                f"the indexers are listed for {len(indexed):,} layers, and num_hidden_layers is {layers:,}"
            )
        kinds = [kind if kind == LINEAR else "" for kind in self.delta_kinds()]
        for number, kind in enumerate(kinds):
            if kind == LINEAR or indexed[number]:
                continue
            if not number or kinds[number - 1] == LINEAR or not indexed[number - 1]:
                raise ConfigError(
                    f"layer {number} reuses the keys selected by the previous layer, which has no indexer"
                )
            kinds[number] = REUSED
        return [Layer(kind=kind, experts=some) for kind, some in zip(kinds, self.moe_layers(), strict=True)]

    def delta(self, **overrides: Any) -> DeltaNet:
        """DeltaNet with a lower bound on the decay."""
        given = self.linear_attn_config or {}
        return super().delta(floor=given.get("gate_lower_bound", self.linear_lower_bound))

    def hyper_head(self) -> HyperMean:
        return HyperMean(hidden=self.hidden_size)
