"""SigLIP 2's encoder of images of any sides: SigLIP's, its table of positions made for a number of patches."""

from typing import ClassVar

from tfacct.base.errors import ConfigError
from tfacct.families import siglip_vision_model
from tfacct.families._base import Count

RELEASED = "2025-02"


class Config(siglip_vision_model.Config):
    """`Siglip2VisionConfig`, with its class's defaults."""

    num_patches: Count = 256

    stems: ClassVar = ("Siglip2Vision",)
    uncounted: ClassVar = siglip_vision_model.Config.uncounted | {"image_size"}
    harmless: ClassVar = siglip_vision_model.Config.harmless | {"max_num_patches"}

    @property
    def context(self) -> int:
        """num_patches, the square of a number. Raises ConfigError."""
        if round(self.num_patches**0.5) ** 2 != self.num_patches:
            raise ConfigError(
                f"num_patches = {self.num_patches:,} is not the square of a number, as the class wants it"
            )
        return self.num_patches
