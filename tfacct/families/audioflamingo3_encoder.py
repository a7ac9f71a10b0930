"""Audio Flamingo 3's encoder of audio: Qwen2-Audio's by another name."""

from typing import ClassVar

from tfacct.families import qwen2_audio_encoder
from tfacct.families._endings import Ending

RELEASED = "2025-07"


class Config(qwen2_audio_encoder.Config):
    """`AudioFlamingo3EncoderConfig`, with its class's defaults."""

    stems: ClassVar = ("AudioFlamingo3",)
    heads: ClassVar = {"Encoder": Ending("models.audioflamingo3.modeling_audioflamingo3.AudioFlamingo3Encoder", "none")}
