"""Chinese CLIP's encoder of texts: BERT's body."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import Picked, Pooler
from tfacct.families._base import Count
from tfacct.families._endings import Ending
from tfacct.families.bert import Config as Bert

RELEASED = "2022-11"


class Config(Bert):
    """`ChineseCLIPTextConfig`, with its class's defaults."""

    projection_dim: Count = 512

    stems: ClassVar = ("ChineseCLIPText",)
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": Ending("ChineseCLIPTextModel", "none", pooler=True, paths={"pooler": "pooler.dense"}, body=""),
        "ModelWithProjection": Ending("", "none", pooler=True, paths={"pooler.project": "text_projection"}),
    }

    def pooler(self, hidden: Any) -> Pooler | Picked:
        """BERT's, or the first token's vector, projected."""
        if "pooler" in self.ending.paths:
            return Pooler(hidden=hidden)
        return Picked(hidden=hidden, width=self.projection_dim)
