"""GLM's language models."""

from typing import Any

from tfacct.architecture.parts import LatentAttention
from tfacct.families.lineages.decoder import Layer
from tfacct.families.lineages.dsa import DsaDecoder, IndexerTypes, check_first_indexer
from tfacct.families.lineages.vocabulary import NonNegativeInt, PositiveInt


class GlmMoeDsa(DsaDecoder):
    """GLM-5: DeepSeek-V3.2's attention at other sizes; some layers use the keys that an earlier one's indexer chose."""

    defaults = dict(
        vocab_size=154880,
        hidden_size=6144,
        intermediate_size=12288,
        num_hidden_layers=78,
        num_attention_heads=64,
        num_key_value_heads=64,
        max_position_embeddings=202752,
        rms_norm_eps=1e-5,
        qk_nope_head_dim=192,
        v_head_dim=256,
        index_n_heads=32,
    )
    q_lora_rank: PositiveInt = 2048
    indexer_types: IndexerTypes | None = None
    index_topk_freq: PositiveInt = 1
    index_skip_topk_offset: NonNegativeInt = 2
    index_topk_pattern: str | list[str] | None = None

    def indexers(self) -> list[bool]:
        return check_first_indexer(self.listed_indexers(), self.num_hidden_layers)

    def listed_indexers(self) -> list[bool]:
        """Which layers have an indexer, by the fields. Raises ConfigError."""
        pattern = self.index_topk_pattern
        if self.indexer_types is not None:
            return [kind == "full" for kind in self.indexer_types]
        if pattern is not None:
            if not {*pattern} <= ({"F", "S"} if isinstance(pattern, str) else {"full", "shared"}):
                raise self.refused("index_topk_pattern", pattern)
            return [kind in ("F", "full") for kind in pattern]
        step, first = self.index_topk_freq, self.index_skip_topk_offset
        return [max(number - first + 1, 0) % step == 0 for number in range(self.num_hidden_layers)]

    def attention(self, layer: Layer, **own: Any) -> LatentAttention:
        return super().attention(layer, **{"index_pairs": "neighbours", **own})
