"""Longformer: RoBERTa's encoder, whose tokens attend in windows that overlap, over a text padded to whole ones."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families import roberta
from tfacct.families._base import Count, CountOrList
from tfacct.families._bert_like import ENCODING, LM_HEAD, class_table
from tfacct.families._overlapping import each_window, own_paths, windowed

RELEASED = "2020-04"

BODY_AT = "longformer."


class Config(roberta.Config):
    """`LongformerConfig`, with its class's defaults: `LongformerForMaskedLM`, or the class that `architectures`
    names."""

    vocab_size: Count = 30522
    attention_window: CountOrList = 512

    stems: ClassVar = ("Longformer",)
    harmless: ClassVar = frozenset({"attention_mode", "ignore_attention_mask", "onnx_export"})
    heads: ClassVar = {name: ENCODING[name] for name in ("ForMaskedLM", "Model", "ForTokenClassification")}
    body: ClassVar = BODY_AT
    hf_paths: ClassVar = class_table(BODY_AT, LM_HEAD) | {
        f"blocks.*.attn.{ours}": theirs
        for ours, theirs in own_paths(f"{BODY_AT}encoder.layer.*.attention.self").items()
    }

    def architecture(self) -> Transformer:
        """RoBERTa's, with attention in windows. Raises ConfigError for windows that the class does not run."""
        windows = each_window(self.attention_window, self.num_hidden_layers, "num_hidden_layers", "a text")
        shape = super().architecture()
        return replace(shape, stacks=windowed(shape.stacks[0].block, windows))
