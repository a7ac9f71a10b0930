"""DeepSeek's architecture: multi-head latent attention (MLA), also sparse, to keys selected by an indexer (DSA), and
experts with a shared expert."""

from typing import Any, ClassVar, Literal, TypeAlias

from tfacct.architecture.parts import Indexer, LatentAttention
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import Decoder, Layer, SharedExperts
from tfacct.families.family import SAME_AS_QUERY_HEADS, submodules
from tfacct.families.fields import NonNegativeInt, PositiveInt, StrictBool, require_even
from tfacct.families.layer_kinds import LayerTypes, MlpLayerTypes


def mla_modules(module: str) -> dict[str, str]:
    """Modules of latent attention."""
    return {
        **submodules("attn", module, "q_a_proj q_b_proj o_proj", q_a_norm="q_a_layernorm", scores="", values=""),
        **submodules("attn", module, kv_a_proj="kv_a_proj_with_mqa", kv_a_norm="kv_a_layernorm"),
        **submodules("attn", module, k_b_proj="kv_b_proj", v_b_proj="kv_b_proj"),
    }


class MlaDecoder(Decoder):
    """The fields of multi-head latent attention (MLA). `latent_attention` is a field of tfacct, not of published
    configs: `expanded` as in transformers, `absorbed` as in decode steps of engines, `auto` for the one of these with
    fewer FLOPs in a step, or `unpacked` with a cache of the keys and values of all heads."""

    sizes = dict(kv_heads=SAME_AS_QUERY_HEADS)
    head_dim: PositiveInt | None = None  # type: ignore[assignment]
    attention_bias: StrictBool = False
    q_lora_rank: PositiveInt | None = 1536
    kv_lora_rank: PositiveInt = 512
    qk_nope_head_dim: PositiveInt = 128
    qk_rope_head_dim: PositiveInt = 64
    v_head_dim: PositiveInt = 128
    latent_attention: Literal["auto", "expanded", "absorbed", "unpacked"] = "auto"
    reference_only = "head_dim num_key_value_heads"
    null_means = {"num_key_value_heads": "num_attention_heads"}
    ignored_fields = "rope_interleave"
    rope_pairs: ClassVar[Literal["halves", "neighbours"]] = "neighbours"
    sums = {"qk_head_dim": ("qk_nope_head_dim", "qk_rope_head_dim")}
    layer_module_names = mla_modules("self_attn")

    def hf_unsupported(self) -> str | None:
        runs = self.latent_attention in ("auto", "expanded")
        return None if runs else "it supports only latent_attention = expanded"

    def attention(self, layer: Layer, **overrides: Any) -> LatentAttention:
        """Latent attention. Raises ConfigError if heads share keys."""
        if self.num_key_value_heads != self.num_attention_heads:
            raise ConfigError(
                f"num_key_value_heads = {self.num_key_value_heads:,} must equal num_attention_heads ="
                f" {self.num_attention_heads:,}: latent attention computes keys for every head"
            )
        how: dict[str, Any] = {
            "heads": self.num_attention_heads,
            "kv_rank": self.kv_lora_rank,
            "nope_dim": self.qk_nope_head_dim,
            "rope_dim": require_even(self.qk_rope_head_dim, "qk_rope_head_dim") if self.qk_rope_head_dim else None,
            "value_dim": self.v_head_dim,
            "q_rank": self.q_lora_rank,
            "bias": self.attention_bias,
            "rotary": self.rope(),
            "mla_mode": self.latent_attention,
        }
        how |= self.options("attention", **overrides)
        return LatentAttention(hidden=self.hidden_size, **how)


class RoutedExperts(SharedExperts):
    """Experts with DeepSeek's names."""

    n_routed_experts: PositiveInt
    n_shared_experts: PositiveInt = 1

    attribute_map = {"num_local_experts": "n_routed_experts"}


class DeepseekExperts(RoutedExperts):
    """The same. The selection rule of DeepSeek's router does not change a count."""

    ignored_fields = "topk_method scoring_func aux_loss_alpha seq_aux ep_size"


INDEXED = ("indexed_attention", "deepseek_sparse_attention")
"""Both names of a layer with DSA in layer_types, the class's name first."""
REUSED = "reused"
"""Kind of a layer that reuses the keys selected by an earlier layer's indexer."""
IndexerTypes: TypeAlias = list[Literal["full", "shared"]]


def check_first_indexer(indexed: list[bool], layers: int) -> list[bool]:
    """True for each layer with an indexer. Raises ConfigError if a list is too short or the first layer has none."""
    if len(indexed) < layers or not indexed[0]:
        raise ConfigError(
            f"the indexers are listed for {len(indexed):,} layers, and num_hidden_layers is {layers:,}"
            if len(indexed) < layers
            else "the first layer reuses selected keys, but there is no earlier layer"
        )
    return indexed[:layers]


class DsaDecoder(DeepseekExperts, MlaDecoder):
    """The fields that DeepSeek-V3.2 and GLM-5 share."""

    defaults = dict(moe_intermediate_size=2048, n_routed_experts=256)
    n_shared_experts: NonNegativeInt = 1
    first_k_dense_replace: NonNegativeInt = 3
    mlp_layer_types: MlpLayerTypes | None = None
    layer_types: LayerTypes | None = None
    mlp_bias: StrictBool = False
    moe_layer_freq: PositiveInt = 1
    index_topk: PositiveInt = 2048
    index_head_dim: PositiveInt = 128
    index_n_heads: PositiveInt
    reference_only = "index_topk layer_types"
    required_values = {"mlp_bias": False, "moe_layer_freq": 1}
    attribute_map = {"num_experts": "n_routed_experts"}
    ignored_fields = "indexer_rope_interleave index_share_for_mtp_iteration moe_router_dtype"
    indexer_kind: ClassVar[type[Indexer]] = Indexer
    keep_in_fp32_modules: ClassVar[tuple[str, ...]] = ("indexer.weights_proj",)
    layer_module_names = submodules(
        "attn.indexer", "self_attn.indexer", "k_norm weights_proj", q_proj="wq_b", k_proj="wk", scores="", sum=""
    )

    def check(self) -> None:
        super().check()
        if self.layer_types not in (None, *([word] * self.num_hidden_layers for word in INDEXED)):
            raise self.refused("layer_types", self.layer_types)
        if self.index_head_dim <= self.qk_rope_head_dim:
            raise ConfigError(
                f"index_head_dim = {self.index_head_dim:,} must be more than"
                f" qk_rope_head_dim = {self.qk_rope_head_dim:,}, its rotary part"
            )

    def indexers(self) -> list[bool]:
        """True for each layer with an indexer. Raises ConfigError."""
        return [True] * self.num_hidden_layers

    def layers(self) -> list[Layer]:
        both = zip(self.indexers(), self.moe_layers(), strict=True)
        return [Layer(kind="" if indexed else REUSED, experts=some) for indexed, some in both]

    def attention(self, layer: Layer, **overrides: Any) -> LatentAttention:
        return super().attention(layer, **{"indexer": self.indexer(layer), **overrides})

    def indexer(self, layer: Layer) -> Indexer:
        """An indexer that selects keys, or reuses the selection of an earlier layer."""
        sizes = {"heads": self.index_n_heads, "head_dim": self.index_head_dim, "top": self.index_topk}
        how = self.options("indexer", **sizes, reused=layer.kind == REUSED)
        return self.indexer_kind(**how)
