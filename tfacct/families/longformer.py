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
    gotchas: ClassVar = (
        "An encoder: nothing is kept between steps, and there is no decode step. It pads a text to whole windows, of"
        " attention_window tokens, and runs over all of it; what it pads is cut off behind the last block.",
        "Which tokens see all others is an input (global_attention_mask) that no config says. None are counted; the"
        " three more projections that each block stores for them are. LongformerForSequenceClassification and"
        " LongformerForQuestionAnswering make some themselves, and are refused.",
        "Scores are counted as the class computes them: of all pairs in windows of which each shares a half with the"
        " next. Half of a window then reads the values of three halves.",
        "The first pad_token_id + 1 rows of the position table stand for no position: 4,098 rows are 4,096 positions."
        " All are counted.",
    )

    def architecture(self) -> Transformer:
        """RoBERTa's, with attention in windows. Raises ConfigError for windows that the class does not run."""
        windows = each_window(self.attention_window, self.num_hidden_layers, "num_hidden_layers", "a text")
        shape = super().architecture()
        return replace(shape, stacks=windowed(shape.stacks[0].block, windows))
