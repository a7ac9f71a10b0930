"""EmbeddingGemma 2's encoder of text: Gemma 4's blocks seeing both ways, rows of every layer without a table, and a
product of every result."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import PerLayerEmbedding, PerLayerInput, Picked
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fields, Layers
from tfacct.families._endings import Ending
from tfacct.families._gemma_kinds import OfKinds
from tfacct.families._layers import FULL, SLIDING, LayerTypes, angles_of, windows

RELEASED = "2026-09"

ROPE = {
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "default", "rope_theta": 1_000_000.0},
}
"""The class's angles where the config has none."""


class Config(OfKinds):
    """`EmbeddingGemma2TextConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 262144
    hidden_size: Count = 512
    intermediate_size: Count = 2048
    num_hidden_layers: Layers = 24
    num_attention_heads: Count = 4
    num_key_value_heads: Count = 2
    max_position_embeddings: Count = 262144
    rope_parameters: Fields | None = ROPE
    sliding_window: Count = 512
    sliding_window_pattern: Count = 6
    layer_types: LayerTypes | None = None
    global_head_dim: Count = 512
    num_global_key_value_heads: Count = 1
    hidden_size_per_layer_input: Count = 512
    embedding_dim: Count = 768

    stems: ClassVar = ("EmbeddingGemma2Text", "EmbeddingGemma2")
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": Ending("AutoModel", "none", pooler=True, paths={"pooler.project": "embedding_projection"}, body="")
    }
    hf_paths: ClassVar = {
        **OfKinds.hf_paths,
        "blocks.*.per_layer.gate_proj": "model.layers.*.ple_block.per_layer_input_gate",
        "blocks.*.per_layer.up_proj": "model.layers.*.ple_block.per_layer_projection",
        "blocks.*.per_layer_post_norm": "model.layers.*.ple_block.post_per_layer_input_norm",
        "per_layer.project": "model.ple.per_layer_model_projection",
        "per_layer.norm": "model.ple.per_layer_projection_norm",
    }

    def pooler(self, hidden: Any) -> Picked:
        """Product of every position's vector."""
        return Picked(hidden=hidden, reads="each", width=self.embedding_dim)

    def seen(self) -> list[int | None]:
        """Keys that each layer's tokens see around themselves, None where it sees everything."""
        layers, step = self.num_hidden_layers, self.sliding_window_pattern
        given = self.layer_types
        if given is not None and len(given) == layers:
            given = [*given[:-1], FULL]
        around = 2 * self.sliding_window + 1
        return windows(given, layers, around, lambda n: (n + 1) % step != 0 and n + 1 < layers)

    def heads_of(self, number: int, window: int | None) -> tuple[int, int]:
        """Size of a layer's heads, and its key/value heads: of its kind, or what per_layer_config says. Raises
        ConfigError."""
        if self.per_layer_config is not None:
            own = self.overrides.get(number, {})
            return own.get("head_dim", self.head_dim), own.get("num_key_value_heads", self.num_key_value_heads)
        if window is not None:
            return self.head_dim, self.num_key_value_heads
        return self.global_head_dim, self.num_global_key_value_heads

    def whole_block(self, window: int | None, size: int, kv_heads: int) -> Block:
        """Attention and network with norms around them, and the layer's own row of the token."""
        norm = self.norm()
        angles = angles_of(self.rope_parameters, ROPE, window)
        attention = self.attention_of(window, size, kv_heads, angles, causal=False)
        own = PerLayerInput(hidden=self.hidden_size, width=self.hidden_size_per_layer_input, activation=self.activation)
        network = Sublayer(self.feed_forward(), norm, norm)
        return Block((Sublayer(attention, norm, norm), network, Sublayer(own, None, norm, after=1.0)))

    def architecture(self) -> Transformer:
        """Blocks with windows to both sides, and those that see everything. Raises ConfigError."""
        per_layer = [(window, *self.heads_of(number, window)) for number, window in enumerate(self.seen())]
        if len({*per_layer}) > len({kind[0] for kind in per_layer}):  # the class turns them by one table
            raise ConfigError("per_layer_config gives layers of one type other heads, which its class refuses")
        kinds = {kind: self.whole_block(*kind) for kind in dict.fromkeys(per_layer)}
        rows = PerLayerEmbedding(
            layers=self.num_hidden_layers,
            width=self.hidden_size_per_layer_input,
            hidden=self.hidden_size,
            eps=self.rms_norm_eps,
        )
        return self.decoder([kinds[kind] for kind in per_layer], per_layer=rows)
