"""ModernBERT's decoder (Ettin): its blocks over the tokens before, with windows of half its size."""

from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, Pooler
from tfacct.architecture.transformer import Transformer
from tfacct.families import modernbert
from tfacct.families._base import Count
from tfacct.families._endings import BODY, CAUSAL_MODEL, SCORED
from tfacct.families._layers import SLIDING

RELEASED = "2025-07"

OWN = {f"blocks.*.attn.{name}_proj": f"model.layers.*.attn.{name}_proj" for name in "qkv"}
HEAD = {"lm_head.transform": "lm_head.dense", "lm_head.norm": "lm_head.norm", "lm_head": "decoder"}


class Config(modernbert.Config):
    """`ModernBertDecoderConfig`, with its class's defaults: `ModernBertDecoderForCausalLM`, or what `architectures`
    names."""

    sliding_window: Count | None = None

    stems: ClassVar = ("ModernBertDecoder",)
    uncounted: ClassVar = modernbert.Config.uncounted | {"sliding_window"}
    harmless: ClassVar = modernbert.Config.harmless | {"causal_mask"}
    heads: ClassVar = {
        "ForCausalLM": CAUSAL_MODEL,
        "Model": BODY,
        "ForSequenceClassification": replace(SCORED, pooler=True, paths=modernbert.HEAD),
    }
    hf_paths: ClassVar = {**modernbert.Config.hf_paths, **OWN, **HEAD}

    def pooler(self, hidden: Any) -> Pooler:
        """What stands in front of the classes of every position."""
        return replace(super().pooler(hidden), reads="each")

    def attention(self, window: int | None) -> Attention:
        """Heads over the tokens up to their own; the window is half of what the config says."""
        return replace(super().attention(window), causal=True)

    @property
    def around(self) -> int:
        """Keys that a query in a window sees. Raises ConfigError."""
        window = self.local_attention // 2
        if self.sliding_window not in (None, window):  # which the class writes beside it
            raise self.refused("sliding_window", self.sliding_window)
        if window < 2 and (self.layer_types is None or SLIDING in self.layer_types):
            raise self.refused("local_attention", self.local_attention)
        return window

    def transformer(self) -> Transformer:
        """Scores of classes have a bias where classifier_bias is on."""
        shape = super().transformer()
        return (
            shape
            if shape.classes is None
            else replace(shape, classes=replace(shape.classes, bias=self.classifier_bias))
        )
