"""DPR: BERT's body as an encoder of questions or of passages, each a vector at its first position."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import Picked
from tfacct.families import bert
from tfacct.families._base import UpTo
from tfacct.families._bert_like import AbleToDecode, class_table
from tfacct.families._endings import Ending

RELEASED = "2020-04"


def _encoder(auto: str, own: str) -> Ending:
    """A class whose body stands in an encoder by this name."""
    paths = {"pooler.project": f"{own}.encode_proj"}
    return Ending(auto, "none", pooler=True, paths=paths, body=f"{own}.bert_model.")


class Config(AbleToDecode):
    """`DPRConfig`, with its class's defaults: `DPRQuestionEncoder`, or the class that `architectures` names."""

    projection_dim: UpTo = 0

    stems: ClassVar = ("DPR",)
    harmless: ClassVar = bert.Config.harmless | {"gradient_checkpointing"}
    heads: ClassVar[Mapping[str, Ending]] = {
        "QuestionEncoder": _encoder("DPRQuestionEncoder", "question_encoder"),
        "ContextEncoder": _encoder("DPRContextEncoder", "ctx_encoder"),
    }
    body: ClassVar = "question_encoder.bert_model."
    hf_paths: ClassVar = class_table("question_encoder.bert_model.", {})

    def pooler(self, hidden: Any) -> Picked | None:
        """Product of the first position's vector, where there is one."""
        return Picked(hidden=hidden, width=self.projection_dim, bias=True) if self.projection_dim else None
