"""Granite with experts and windows: granitemoeshared's networks, sinks beside the scores, angles by layer."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families import granite_swa, granitemoeshared

RELEASED = "2026-07"


class Config(granite_swa.Windowed, granitemoeshared.Config):
    """`GraniteMoeSWAConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    stems: ClassVar = ("GraniteMoeSWA",)
    hf_paths: ClassVar = {**granitemoeshared.Config.hf_paths, **granite_swa.SINKS_PATH}
    hf_tensors: ClassVar = {**granitemoeshared.Config.hf_tensors, **granite_swa.SINKS_TENSOR}

    def architecture(self) -> Transformer:
        """Experts in every layer."""
        return self.mixed(self.experts())
