"""ViT MSN: ViT without a pooler."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.families import vit
from tfacct.families._base import Real
from tfacct.families._endings import BODY, Ending

RELEASED = "2022-04"


class Config(vit.Config):
    """`model_type = "vit_msn"`: `ViTMSNModel`, or the class that `architectures` names."""

    layer_norm_eps: Real = 1e-6

    stems: ClassVar = ("ViTMSN",)
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": BODY,
        "ForImageClassification": replace(
            vit.Config.heads["ForImageClassification"], auto="ViTMSNForImageClassification"
        ),
    }

    def pooler(self, hidden: Any) -> None:  # type: ignore[override]  # noqa: ARG002
        """It has none."""
        return
