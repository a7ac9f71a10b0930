"""Gemma 2: every other layer has a window, beginning with the first; scores and logits are bounded."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.families._base import Real
from tfacct.families._gemma_like import PREFIX_SAID
from tfacct.families._gemma_windows import GemmaWindows

RELEASED = "2024-06"


class Config(GemmaWindows):
    """`Gemma2Config`, with its class's defaults."""

    final_logit_softcapping: Real | None = 30.0
    attn_logit_softcapping: Real | None = 50.0

    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 256000,
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
    }
    changes_training: ClassVar = frozenset({"use_bidirectional_attention"})
    stems: ClassVar = ("Gemma2",)
    gotchas: ClassVar = (
        *GemmaWindows.gotchas,
        PREFIX_SAID,
        "Layers 0, 2, 4 … have the window unless layer_types says otherwise. An absent sliding_window means 4,096.",
    )

    def slides(self, number: int) -> bool:
        """Even layers, counted from 0."""
        return number % 2 == 0

    def of_layer(self, window: int | None) -> dict[str, Any]:
        """Tokens of a PaliGemma 2's prefix see one another."""
        return {"window": window, "prefix": bool(self.use_bidirectional_attention)}
