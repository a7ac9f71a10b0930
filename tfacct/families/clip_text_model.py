"""CLIP's encoder of texts: causal, although it reads whole texts and keeps nothing."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import Picked
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Word
from tfacct.families._endings import Ending
from tfacct.families._towers import TextTower, class_table

RELEASED = "2021-03"


class Config(TextTower):
    """`CLIPTextConfig`, with its class's defaults."""

    hidden_size: Count = 512
    intermediate_size: Count = 2048
    num_attention_heads: Count = 8
    projection_dim: Count = 512
    hidden_act: Word = "quick_gelu"

    stems: ClassVar = ("CLIPText",)
    body: ClassVar = "text_model."
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": Ending("AutoModel", "none", body=""),
        "ModelWithProjection": Ending(
            "CLIPTextModelWithProjection", "none", pooler=True, paths={"pooler.project": "text_projection"}
        ),
    }
    hf_paths: ClassVar = class_table("text_model.", "token_embedding", ("final_norm", "final_layer_norm"))

    def pooler(self, hidden: Any) -> Picked:
        """Projection of the vector at the end of the text."""
        return Picked(hidden=hidden, reads="end", width=self.projection_dim)

    def architecture(self) -> Transformer:
        """Tables of tokens and positions, pre-norm blocks and a norm."""
        return Transformer(
            **self.tables(), stacks=(self.stack(causal=True, keep=False),), final_norm=self.norm(), head=None
        )
