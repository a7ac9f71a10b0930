"""Command R: attention and network side by side behind one norm, a tied head with scaled logits."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Real, Switch
from tfacct.families._cohere_like import CohereLike


class Config(CohereLike):
    """`CohereConfig`, with its class's defaults, sizes too."""

    rope_theta: Real | None = 500_000.0
    use_qk_norm: Switch = False

    trains: ClassVar = frozenset({"sdpa", "eager", "accumulate", "selective", "chunked", "lora", "nf4", "lora_whole"})
    divided: ClassVar = frozenset({"published"})
    stems: ClassVar = ("Cohere",)
    gotchas: ClassVar = (
        *CohereLike.gotchas,
        "use_qk_norm = true, as in Command R+, is refused: each head has a scale of its own there.",
    )

    def architecture(self) -> Transformer:
        """Equal parallel blocks."""
        if self.use_qk_norm:
            raise self.refused("use_qk_norm", True)
        return self.decoder(self.equal_blocks(self.beside(self.attention())))
