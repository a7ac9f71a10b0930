"""DINOv2 with registers: further learned tokens behind the class token, which have no positions."""

from typing import ClassVar

from tfacct.families import dinov2
from tfacct.families._base import Count, UpTo

RELEASED = "2023-09"


class Config(dinov2.Config):
    """`model_type = "dinov2_with_registers"`: `Dinov2WithRegistersModel`."""

    patch_size: Count = 16
    num_register_tokens: UpTo = 4
    use_mask_token: bool | None = None  # type: ignore[assignment]

    stems: ClassVar = ("Dinov2WithRegisters",)
    fixed: ClassVar = dinov2.Config.fixed - {"Xc"}
    uncounted: ClassVar = dinov2.Config.uncounted | {"use_mask_token"}
    heads: ClassVar = dinov2.Config.heads
    hf_paths: ClassVar = dinov2.Config.hf_paths
    hf_tensors: ClassVar = {**dinov2.Config.hf_tensors, "embed.further.weight": "embeddings.register_tokens"}

    @property
    def further(self) -> int:  # type: ignore[override]
        """The registers. Raises ConfigError where there are none."""
        if not self.num_register_tokens:
            raise self.refused("num_register_tokens", 0)
        return self.num_register_tokens

    @property
    def masked(self) -> bool:
        """The class always stores the token."""
        return True
