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

    def architecture(self) -> Transformer:
        """BERT's, with the tables of boxes."""
        boxes = Boxes(rows=self.max_2d_position_embeddings, hidden=self.hidden_size)
        return replace(super().architecture(), boxes=boxes)
