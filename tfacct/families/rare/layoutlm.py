"""LayoutLM: BERT with embeddings of a token's box on its page."""

from dataclasses import replace

from tfacct.architecture.parts import Boxes
from tfacct.architecture.transformer import Transformer
from tfacct.families.bert import POOLED, Bert, StoresPooler
from tfacct.families.fields import PositiveInt
from tfacct.families.task_heads import ANSWERS


class LayoutLM(StoresPooler, Bert):
    """LayoutLM, an encoder of pages: BERT, with embeddings of the box of each token on its page."""

    max_2d_position_embeddings: PositiveInt = 1024
    task_heads = {**POOLED, "ForQuestionAnswering": replace(ANSWERS, auto="LayoutLMForQuestionAnswering")}
    base_model_prefix = "layoutlm"
    module_names = {
        "idle": ".pooler.dense",
        "pooler": ".pooler.dense",
        **{f"box_embed.{name}": f".embeddings.{name}_position_embeddings" for name in Boxes.TABLES},
    }

    def architecture(self) -> Transformer:
        boxes = Boxes(rows=self.max_2d_position_embeddings, hidden=self.hidden_size)
        return replace(super().architecture(), extra_embeddings=(boxes,))
