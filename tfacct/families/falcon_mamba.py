"""FalconMamba: Mamba, with RMSNorms without scales of what a token's step is computed from and of both vectors."""

from typing import Any, ClassVar

from tfacct.families._base import Count, Real
from tfacct.families.mamba import Config as MambaConfig

RELEASED = "2024-08"


class Config(MambaConfig):
    """`FalconMambaConfig`, with its class's defaults, sizes too. The head is tied unless the config says otherwise."""

    vocab_size: Count = 50280
    hidden_size: Count = 768
    num_hidden_layers: Count = 32
    mixer_rms_eps: Real = 1e-6

    stems: ClassVar = ("FalconMamba",)
    uncounted: ClassVar = MambaConfig.uncounted | {"mixer_rms_eps"}
    harmless: ClassVar = MambaConfig.harmless | {"use_falcon_mambapy"}
    gotchas: ClassVar = (
        "As mamba, with norms that have no parameters. The head is tied by class default; the published 7B says that it"
        " is not.",
        "The width is intermediate_size if it is given, else expand · hidden_size. The published 7B says both, and an"
        " expand of 16 that does not fit: the class takes the width.",
    )

    def _of_mixer(self) -> dict[str, Any]:
        """Norms without scales."""
        return {"norms": "plain", "eps": self.mixer_rms_eps}

    def _check_width(self) -> None:
        """Take the width, whatever expand says."""
