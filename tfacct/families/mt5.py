"""mT5: T5 version 1.1, gated and with a head of its own, for many languages."""

from typing import ClassVar

from tfacct.families import t5
from tfacct.families._base import Count, Layers, Word

RELEASED = "2020-10"


class Config(t5.Config):
    """`MT5Config`, with its class's defaults."""

    vocab_size: Count = 250112
    d_ff: Count = 1024
    num_layers: Layers = 8
    num_heads: Count = 6
    feed_forward_proj: Word = "gated-gelu"

    stems: ClassVar = ("MT5",)
    heads: ClassVar = {ending: head for ending, head in t5.Config.heads.items() if ending != "WithLMHeadModel"}
    tied_scale: ClassVar = False
    gotchas: ClassVar[tuple[str, ...]] = (
        "Published configs say tie_word_embeddings = false, and the head is counted with its own weight, as the files"
        " and the published totals have it. transformers 5 ties it anyway, so its class is not asked then.",
        "The input of the head is not scaled, tied or not.",
        "The table of relative positions is stored in the first block of each stack, and all its blocks add it.",
        "Nothing limits the context. n_positions is the context that the model was trained with.",
    )
