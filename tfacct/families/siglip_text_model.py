"""SigLIP's encoder of texts: every token sees all others, and the last one's vector is projected."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import Picked
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real, Word
from tfacct.families._endings import Ending
from tfacct.families._towers import TextTower, class_table

RELEASED = "2023-03"


class Config(TextTower):
    """`SiglipTextConfig`, with its class's defaults."""

    vocab_size: Count = 32000
    max_position_embeddings: Count = 64
    hidden_act: Word = "gelu_pytorch_tanh"
    layer_norm_eps: Real = 1e-6
    projection_size: Count | None = None

    stems: ClassVar = ("SiglipText",)
    in_files: ClassVar = ((r"^text_model\.", ""),)
    body: ClassVar = ""
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": Ending("SiglipTextModel", "none", pooler=True, paths={"pooler.project": "head"})
    }
    hf_paths: ClassVar = class_table("", "token_embedding", ("final_norm", "final_layer_norm"))

    def pooler(self, hidden: Any) -> Picked:
        """Projection of the last position's vector."""
        return Picked(hidden=hidden, reads="last", width=self.projection_size or self.hidden_size, bias=True)

    def architecture(self) -> Transformer:
        """Tables of tokens and positions, pre-norm blocks and a norm."""
        return Transformer(**self.tables(), stacks=(self.stack(),), final_norm=self.norm(), head=None)
