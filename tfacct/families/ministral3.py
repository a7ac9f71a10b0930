"""Ministral 3: Mistral's block without a window; queries grow with their position."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeGuard

from tfacct.architecture.parts import Temperature
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fields, Layers, Real
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2025-12"

ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1_000_000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}
"""The class's angles where the config has none."""


def _positive(number: object) -> TypeGuard[float]:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and number > 0


def growth(spelled: Mapping[str, Any]) -> Temperature | None:
    """Growth of queries, where angles are spelled with a beta."""
    beta, length = spelled.get("llama_4_scaling_beta"), spelled.get("original_max_position_embeddings")
    return Temperature(float(beta), float(length)) if _positive(beta) and _positive(length) else None


class Config(LlamaLike):
    """`Ministral3Config`, with its class's defaults, sizes too. An absent sliding_window is none."""

    vocab_size: Count = 131072
    hidden_size: Count = 4096
    intermediate_size: Count = 14336
    num_hidden_layers: Layers = 34
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    head_dim: Count = 128
    max_position_embeddings: Count = 262144
    sliding_window: Window | None = None
    rms_norm_eps: Real = 1e-5
    rope_parameters: Fields | None = ROPE

    stems: ClassVar = ("Ministral3",)

    def architecture(self) -> Transformer:
        """No biases; the window, where there is one, in every layer."""
        attention = self.attention(window=self.sliding_window, temperature=growth(self.rope_parameters or ROPE))
        return self.decoder(self.equal_blocks(self.block(attention, self.feed_forward())))
