"""DeiT: ViT with a second learned token, which a teacher's classes are read from."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.families import vit
from tfacct.families._endings import Ending

RELEASED = "2020-12"


class Config(vit.Config):
    """`model_type = "deit"`: `DeiTModel`, or the class that `architectures` names."""

    stems: ClassVar = ("DeiT",)
    body: ClassVar = "deit."
    further: ClassVar = 1
    heads: ClassVar[Mapping[str, Ending]] = {
        **vit.Config.heads,
        "ForImageClassificationWithTeacher": replace(
            vit.Config.heads["ForImageClassification"],
            auto="DeiTForImageClassificationWithTeacher",
            paths={"classifier": "cls_classifier", "classifier.taught": "distillation_classifier"},
            taught=True,
        ),
    }
    hf_paths: ClassVar = {ours: theirs.replace("vit.", "deit.", 1) for ours, theirs in vit.Config.hf_paths.items()}
    hf_tensors: ClassVar = {
        **{ours: theirs.replace("vit.", "deit.", 1) for ours, theirs in vit.Config.hf_tensors.items()},
        "embed.further.weight": "deit.embeddings.distillation_token",
    }

    def tables(self) -> dict[str, Any]:
        """Patches behind both tokens, and a table of positions."""
        made = super().tables()
        return {**made, "embed": replace(made["embed"], front=2, taught=True)}
