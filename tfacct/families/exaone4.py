"""EXAONE 4: results are normed before they are added; norms of queries and keys; windows in three layers of four."""

from typing import Annotated, ClassVar

from pydantic_core import core_schema

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked, Count, Layers, Real
from tfacct.families._layers import LayerTypes, windows
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2025-07"

Pattern = Annotated[
    int | str, Checked(core_schema.union_schema([core_schema.int_schema(ge=0), core_schema.str_schema()]))
]


class Config(LlamaLike):
    """`Exaone4Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 102400
    hidden_size: Count = 4096
    intermediate_size: Count = 16384
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 2048
    sliding_window: Window | None = 4096
    sliding_window_pattern: Pattern | None = 4
    layer_types: LayerTypes | None = None
    rms_norm_eps: Real = 1e-5

    stems: ClassVar = ("Exaone4",)
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **QK_NORM_PATHS,
        "blocks.*.attn_post_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_feedforward_layernorm",
    }

    def slides(self, number: int) -> bool:
        """True if a layer has the window, where layer_types does not say. Raises ConfigError."""
        if isinstance(self.sliding_window_pattern, str):
            raise ConfigError(
                f"sliding_window_pattern = {self.sliding_window_pattern!r} does not say which layers have the window",
                "give layer_types beside it, as published configs do",
            )
        if not self.sliding_window or not self.sliding_window_pattern:
            return False
        return (number + 1) % self.sliding_window_pattern != 0

    def architecture(self) -> Transformer:
        """Norms behind attention and network; full layers beside windowed ones are not rotated."""
        norm, network = QKNorm(self.rms_norm_eps), self.feed_forward()
        per_layer = windows(self.layer_types, self.num_hidden_layers, self.sliding_window, self.slides)
        still = {"rotary": None} if self.sliding_window else {}
        kinds = {
            window: Block.of(
                self.attention(qk_norm=norm, window=window, **({} if window else still)),
                network,
                post_norm=self.norm(),
            )
            for window in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[window] for window in per_layer])
