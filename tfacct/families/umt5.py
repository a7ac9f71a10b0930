"""umT5: mT5 with a table of relative positions in every block."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.families import mt5, t5

RELEASED = "2023-04"


class Config(mt5.Config):
    """`UMT5Config`, with its class's defaults."""

    stems: ClassVar = ("UMT5",)
    tables: ClassVar = "blocks"
    tied_scale: ClassVar = True
    gotchas: ClassVar = (
        "Every block has its own table of relative positions; T5 and mT5 have one on each side.",
        "Published configs say tie_word_embeddings = false, and the head is counted with its own weight, as the files"
        " have it. transformers 5 ties it anyway, so its class is not asked then.",
        "Nothing limits the context. n_positions is the context that the model was trained with.",
    )

    def class_paths(self) -> Mapping[str, str]:
        """As T5's, with the tables in the blocks."""
        theirs = t5.Config.class_paths(self)
        at = "block.*.layer.0.SelfAttention.relative_attention_bias"
        own = {"blocks.*.attn.rel_bias": f"encoder.{at}"}
        if self.ending.side is None:
            own = {"encoder.blocks.*.attn.rel_bias": f"encoder.{at}", "blocks.*.attn.rel_bias": f"decoder.{at}"}
        return {**{ours: their for ours, their in theirs.items() if not ours.endswith("rel_bias")}, **own}
