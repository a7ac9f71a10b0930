"""Audio Flamingo 3's encoder of audio: that of Qwen2-Audio."""

from tests.families import qwen2_audio_encoder as first
from tests.families.qwen2_audio_encoder import CONTEXT as CONTEXT
from tests.families.qwen2_audio_encoder import REQUIRED as REQUIRED
from tests.families.qwen2_audio_encoder import drawn as drawn
from tests.families.qwen2_audio_encoder import sized as sized

TINY = {**first.TINY, "model_type": "audioflamingo3_encoder"}
SILENT = {"scale_embedding": True, "layerdrop": 0.5}
