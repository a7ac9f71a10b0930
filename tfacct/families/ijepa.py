"""I-JEPA: ViT of patches alone, without a class token and without a pooler."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Picked
from tfacct.families import vit
from tfacct.families._endings import BODY, Ending
from tfacct.families._towers import Tower

RELEASED = "2023-01"


class Config(vit.Config):
    """`model_type = "ijepa"`: `IJepaModel`, or the class that `architectures` names."""

    stems: ClassVar = ("IJepa",)
    body: ClassVar = "ijepa."
    class_token: ClassVar = False
    fixed: ClassVar = Tower.fixed
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": BODY,
        "ForImageClassification": replace(vit.Config.heads["ForImageClassification"], first=False, pooler=True),
    }
    hf_paths: ClassVar = {ours: theirs.replace("vit.", "ijepa.", 1) for ours, theirs in vit.Config.hf_paths.items()}
    hf_tensors: ClassVar = {"pos_embed.weight": "ijepa.embeddings.position_embeddings"}

    def pooler(self, hidden: Any) -> Picked:  # type: ignore[override]
        """Mean of all patches."""
        return Picked(hidden=hidden, reads="average")
