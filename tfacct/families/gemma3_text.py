"""Gemma 3: five windowed layers to one full layer; norms of queries and keys; two rotary bases."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, Part, QKNorm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.complaints import shown
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Real
from tfacct.families._endings import CAUSAL_MODEL, CLASSIFYING
from tfacct.families._gemma_windows import GemmaWindows
from tfacct.families._llama_like import QK_NORM_PATHS

RELEASED = "2025-03"


class Config(GemmaWindows):
    """`Gemma3TextConfig`, with its class's defaults, which published configs rely on for sizes too."""

    hidden_size: Count = 2304
    num_hidden_layers: Layers = 26
    num_attention_heads: Count = 8
    max_position_embeddings: Count = 131072
    vocab_size: Count = 262208
    sliding_window_pattern: Count = 6
    rope_local_base_freq: Real = 10_000.0

    stems: ClassVar = ("Gemma3", "Gemma3Text")
    uncounted: ClassVar = GemmaWindows.uncounted | {"rope_local_base_freq"}
    hf_paths: ClassVar = {
        **GemmaWindows.hf_paths,
        **QK_NORM_PATHS,
    }
    harmless: ClassVar = GemmaWindows.harmless | frozenset({"_sliding_window_pattern"})
    heads: ClassVar = {**CLASSIFYING, "ForConditionalGeneration": CAUSAL_MODEL}  # the same head, behind images too

    def slides(self, number: int) -> bool:
        """All but every sliding_window_pattern-th."""
        return (number + 1) % self.sliding_window_pattern != 0

    def of_layer(self, window: int | None) -> dict[str, Any]:
        """Norms of queries and keys; windowed layers turn by a smaller base, and not stretched."""
        kind = "full_attention" if window is None else "sliding_attention"
        spelled = (self.rope_parameters or {}).get(kind) or ({} if window else self.rope_scaling) or {}
        if not isinstance(spelled, Mapping):
            raise ConfigError(f"rope_parameters.{kind} must be an object of fields, not {shown(spelled)}")
        base = spelled.get("rope_theta") or (self.rope_local_base_freq if window else self.rope_theta or 1_000_000.0)
        norm = QKNorm(self.rms_norm_eps, less_one=True)
        own = {"qk_norm": norm, "rotary": Rotary(base, spelled)}
        if not self.use_bidirectional_attention:
            return {"window": window, **own}
        return {"window": window and 2 * (window // 2) + 1, "causal": False, **own}

    def class_keeps(self) -> Transformer:
        """The class keeps keys and values of an encoder too."""
        if not self.use_bidirectional_attention:
            return GemmaWindows.class_keeps(self)

        def kept(part: Part) -> Part:
            return (
                replace(part, causal=True, window=part.window and part.window // 2)
                if isinstance(part, Attention)
                else part
            )

        return self.transformer().mapped(kept)
