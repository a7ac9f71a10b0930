"""Qwen2-Audio's encoder of audio: Whisper's, whose results are averaged in twos in front of the last norm."""

from typing import Any, ClassVar

from tfacct.architecture.parts import Averaged
from tfacct.families import voxtral_encoder
from tfacct.families._endings import Ending

RELEASED = "2024-07"

AVERAGED = 2


class Config(voxtral_encoder.Config):
    """`Qwen2AudioEncoderConfig`, with its class's defaults."""

    stems: ClassVar = ("Qwen2Audio",)
    heads: ClassVar = {"Encoder": Ending("AutoModel", "none")}
    fixed: ClassVar = voxtral_encoder.Config.fixed | {"Mp"}
    hf_paths: ClassVar = {
        **{ours: theirs for ours, theirs in voxtral_encoder.Config.hf_paths.items() if ours != "final_norm"},
        "merger.norm": "layer_norm",
    }

    def behind(self) -> dict[str, Any]:
        """Means of two positions, and their norm."""
        return {"final_norm": None, "merger": Averaged(hidden=self.hidden_size, patches=AVERAGED)}
