"""Command R: attention and network side by side behind one norm, a tied head with scaled logits."""

from typing import ClassVar

from tfacct.architecture.parts import QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Real, Switch
from tfacct.families._cohere_like import CohereLike
from tfacct.families._llama_like import QK_NORM_PATHS

RELEASED = "2024-03"


class Config(CohereLike):
    """`CohereConfig`, with its class's defaults, sizes too."""

    rope_theta: Real | None = 500_000.0
    use_qk_norm: Switch = False

    stems: ClassVar = ("Cohere",)
    hf_paths: ClassVar = {**CohereLike.hf_paths, **QK_NORM_PATHS}

    def architecture(self) -> Transformer:
        """Equal parallel blocks."""
        norm = QKNorm(self.layer_norm_eps, kind="layer", own=True, shift=False) if self.use_qk_norm else None
        return self.decoder(self.equal_blocks(self.beside(self.attention(qk_norm=norm))))
