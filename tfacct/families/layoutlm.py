"""LayoutLM, an encoder of pages: BERT, with tables of where a token's box stands on its page."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Boxes
from tfacct.architecture.transformer import Transformer
from tfacct.families import bert
from tfacct.families._base import Count
from tfacct.families._endings import ANSWERS
from tfacct.families._idle_pooler import StoresPooler

RELEASED = "2019-12"

BODY_AT = "layoutlm."


class Config(StoresPooler, bert.Config):
    """`LayoutLMConfig`, with its class's defaults: `LayoutLMForMaskedLM`, or the class that `architectures` names."""

    max_2d_position_embeddings: Count = 1024

    stems: ClassVar = ("LayoutLM",)
    heads: ClassVar = {
        **bert.of_texts(BODY_AT),
        "ForQuestionAnswering": replace(ANSWERS, auto="LayoutLMForQuestionAnswering"),
    }
    body: ClassVar = BODY_AT
    hf_paths: ClassVar = {
        **{ours: theirs.replace("bert.", BODY_AT) for ours, theirs in bert.Config.hf_paths.items()},
        "idle": f"{BODY_AT}pooler.dense",
        "pooler": f"{BODY_AT}pooler.dense",
        **{f"box_embed.{name}": f"{BODY_AT}embeddings.{name}_position_embeddings" for name in Boxes.TABLES},
    }
    gotchas: ClassVar = (
        "An encoder: every token sees all others, nothing is kept between steps, and there is no decode step.",
        "Four tables of max_2d_position_embeddings rows: of columns, rows, heights and widths. A token's box reads the"
        " first two twice, so six rows are added to its own. Heads are BERT's, with the same names.",
        "Every class stores the pooler, and only LayoutLMModel and the classes of a text read what it makes: its"
        " product is counted in those alone.",
        "A position_embedding_type other than absolute is refused, and so is is_decoder = true.",
    )

    def architecture(self) -> Transformer:
        """BERT's, with the tables of boxes."""
        boxes = Boxes(rows=self.max_2d_position_embeddings, hidden=self.hidden_size)
        return replace(super().architecture(), boxes=boxes)
