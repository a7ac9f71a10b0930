"""GLM-5: DeepSeek-V3.2's attention at other sizes; some layers read the keys that an earlier one's indexer chose."""

from typing import Annotated, ClassVar

from pydantic_core import core_schema

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked, Count, Layers, Real, UpTo
from tfacct.families._indexed import Indexed

RELEASED = "2026-02"

Kinds = Annotated[
    list[str], Checked(core_schema.list_schema(core_schema.literal_schema(["full", "shared"]), strict=True))
]


def check_first_chooses(kinds: list[bool], layers: int) -> list[bool]:
    """Whether each layer has an indexer, as a list says. Raises ConfigError for a list too short, and where the first
    has none."""
    if len(kinds) < layers or not kinds[0]:
        raise ConfigError(
            f"indexers of {len(kinds):,} layers, and num_hidden_layers is {layers:,}"
            if len(kinds) < layers
            else "the first layer reads keys that another chose, and there is none before it"
        )
    return kinds[:layers]


class Config(Indexed):
    """`GlmMoeDsaConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 154880
    hidden_size: Count = 6144
    intermediate_size: Count = 12288
    num_hidden_layers: Layers = 78
    num_attention_heads: Count = 64
    num_key_value_heads: Count = 64
    max_position_embeddings: Count = 202752
    rms_norm_eps: Real = 1e-5
    q_lora_rank: Count = 2048
    qk_nope_head_dim: Count = 192
    v_head_dim: Count = 256
    index_n_heads: Count = 32
    indexer_types: Kinds | None = None
    index_topk_freq: Count = 1
    index_skip_topk_offset: UpTo = 2
    index_topk_pattern: str | list[str] | None = None

    stems: ClassVar[tuple[str, ...]] = ("GlmMoeDsa",)

    def chooses(self) -> list[bool]:
        """Booleans, one for each layer: whether it has an indexer. Raises ConfigError."""
        return check_first_chooses(self.listed(), self.num_hidden_layers)

    def listed(self) -> list[bool]:
        """The same, as the fields say it. Raises ConfigError."""
        layers, pattern = self.num_hidden_layers, self.index_topk_pattern
        if self.indexer_types is not None:
            kinds = [kind == "full" for kind in self.indexer_types]
        elif pattern is not None:
            if not {*pattern} <= ({"F", "S"} if isinstance(pattern, str) else {"full", "shared"}):
                raise self.refused("index_topk_pattern", pattern)
            kinds = [kind in ("F", "full") for kind in pattern]
        else:
            step, first = self.index_topk_freq, self.index_skip_topk_offset
            kinds = [max(number - first + 1, 0) % step == 0 for number in range(layers)]
        return kinds

    def architecture(self) -> Transformer:
        """Layers that choose keys, and layers that follow."""
        self.refuse()
        own, following = (self.choosing(index_pairs="neighbours", follows=follows) for follows in (False, True))
        return self.indexed([own if chooses else following for chooses in self.chooses()])
