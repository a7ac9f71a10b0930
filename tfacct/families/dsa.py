"""DeepSeek sparse attention (DSA): multi-head latent attention to the keys that an indexer chooses."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic_core import core_schema

from tfacct.architecture.parts import Indexer, LatentAttention
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import Layer
from tfacct.families.fields import CoreSchema, NonNegativeInt, PositiveInt, StrictBool
from tfacct.families.layer_kinds import LayerTypes, MlpLayerTypes
from tfacct.families.mla import DeepseekExperts, MlaDecoder
from tfacct.families.task_heads import DECODER

INDEXED = ("indexed_attention", "deepseek_sparse_attention")
"""Both words of layer_types for a layer with DSA, the class's first."""
REUSED = "reused"
"""Kind of a layer that attends to the keys which an earlier layer's indexer chose."""
IndexerTypes = Annotated[
    list[str], CoreSchema(core_schema.list_schema(core_schema.literal_schema(["full", "shared"]), strict=True))
]


def check_first_indexer(own: list[bool], layers: int) -> list[bool]:
    """Which layers have an indexer. Raises ConfigError if a list is too short or the first layer has none."""
    if len(own) < layers or not own[0]:
        raise ConfigError(
            f"indexers of {len(own):,} layers, and num_hidden_layers is {layers:,}"
            if len(own) < layers
            else "the first layer reads keys that another chose, and there is none before it"
        )
    return own[:layers]


class DsaDecoder(DeepseekExperts, MlaDecoder):
    """The fields that DeepSeek-V3.2 and GLM-5 share."""

    moe_intermediate_size: PositiveInt = 2048
    n_routed_experts: PositiveInt = 256
    n_shared_experts: NonNegativeInt = 1
    num_experts_per_tok: PositiveInt = 8
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
    task_heads = DECODER
    indexer_pairs: ClassVar[Literal["halves", "neighbours"]] = "halves"
    keep_in_fp32_modules: ClassVar[tuple[str, ...]] = ("indexer.weights_proj",)
    layer_module_names = {
        **{f"attn.indexer.{name}": f"self_attn.indexer.{name}" for name in ("k_norm", "weights_proj")},
        "attn.indexer.q_proj": "self_attn.indexer.wq_b",
        "attn.indexer.k_proj": "self_attn.indexer.wk",
        "attn.indexer.scores": "self_attn.indexer",
        "attn.indexer.sum": "self_attn.indexer",
    }

    def check(self) -> None:
        super().check()
        if self.layer_types not in (None, *([word] * self.num_hidden_layers for word in INDEXED)):
            raise self.refused("layer_types", self.layer_types)
        if self.index_head_dim <= self.qk_rope_head_dim:
            raise ConfigError(
                f"index_head_dim = {self.index_head_dim:,} must be more than"
                f" qk_rope_head_dim = {self.qk_rope_head_dim:,}, the part of it that is rotated"
            )

    def indexers(self) -> list[bool]:
        """Which layers have an indexer. Raises ConfigError."""
        return [True] * self.num_hidden_layers

    def layers(self) -> list[Layer]:
        both = zip(self.indexers(), self.moe_layers(), strict=True)
        return [Layer(kind="" if own else REUSED, experts=some) for own, some in both]

    def attention(self, layer: Layer, **own: Any) -> LatentAttention:
        return super().attention(layer, **{"indexer": self.indexer(layer), **own})

    def indexer(self, layer: Layer, kind: type[Indexer] = Indexer, **own: Any) -> Indexer:
        """Chooses keys, or reuses those that an earlier layer chose."""
        sizes: dict[str, Any] = {"heads": self.index_n_heads, "head_dim": self.index_head_dim, "top": self.index_topk}
        return kind(**sizes, pairs=self.indexer_pairs, reused=layer.kind == REUSED, **own)
