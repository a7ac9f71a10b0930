"""CLIP's encoder of images: patches without a bias, a class token, a norm in front of the blocks."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import Picked
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Word
from tfacct.families._endings import Ending
from tfacct.families._towers import ImageTower, class_table

RELEASED = "2021-03"


class Config(ImageTower):
    """`CLIPVisionConfig`, with its class's defaults."""

    patch_size: Count = 32
    projection_dim: Count = 512
    hidden_act: Word = "quick_gelu"

    stems: ClassVar = ("CLIPVision",)
    body: ClassVar = "vision_model."
    harmless: ClassVar = ImageTower.harmless | {"vocab_size"}
    patch_bias: ClassVar = False
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": Ending("AutoModel", "none", pooler=True, body=""),
        "ModelWithProjection": Ending(
            "CLIPVisionModelWithProjection", "none", pooler=True, paths={"pooler.project": "visual_projection"}
        ),
    }
    hf_paths: ClassVar = class_table(
        "vision_model.", "patch_embedding", ("pooler.norm", "post_layernorm"), embed_norm="pre_layrnorm"
    )
    hf_tensors: ClassVar = {"embed.class.weight": "vision_model.embeddings.class_embedding"}

    def pooler(self, hidden: Any) -> Picked:
        """The class token's vector, normed, and projected where the class does so."""
        projected = "pooler.project" in self.ending.paths
        return Picked(hidden=hidden, norm_eps=self.layer_norm_eps, width=self.projection_dim if projected else None)

    def architecture(self) -> Transformer:
        """Patches, a class token, positions, a norm, and pre-norm blocks."""
        return Transformer(**self.tables(), embed_norm=self.norm(), stacks=(self.stack(),), final_norm=None, head=None)
