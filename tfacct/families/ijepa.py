"""I-JEPA: ViT of patches alone, without a class token and without a pooler."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Picked
from tfacct.families import vit
from tfacct.families._endings import BODY, Ending
from tfacct.families._towers import PATCHES_SAID, Tower

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
    gotchas: ClassVar = (
        PATCHES_SAID,
        "Without `architectures` it is IJepaModel, without a pooler and without classes. IJepaForImageClassification"
        " scores its classes of the mean of all patches.",
        "A pooler_output_size other than hidden_size is refused.",
    )

    def pooler(self, hidden: Any) -> Picked:  # type: ignore[override]
        """Mean of all patches."""
        return Picked(hidden=hidden, reads="average")
