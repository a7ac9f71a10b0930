"""Test configs of the audio lineage: a small one of each family, and variants."""

from tests.families._configs import SIZES


class VoxtralEncoder:
    TINY = {**SIZES, "model_type": "voxtral_encoder", "num_mel_bins": 11, "hidden_size": 60, "max_source_positions": 19}
    SILENT = {"scale_embedding": True, "vocab_size": 51866, "layerdrop": 0.5}
    CONTEXT = 1500


class Qwen2AudioEncoder(VoxtralEncoder):
    TINY = {**VoxtralEncoder.TINY, "model_type": "qwen2_audio_encoder", "max_source_positions": 34}


class AudioFlamingo3Encoder(Qwen2AudioEncoder):
    TINY = {**Qwen2AudioEncoder.TINY, "model_type": "audioflamingo3_encoder"}
    SILENT = {"scale_embedding": True, "layerdrop": 0.5}


class Qwen2_5OmniAudio(VoxtralEncoder):
    TINY = {
        **VoxtralEncoder.TINY, "model_type": "qwen2_5_omni_audio_encoder", "max_source_positions": 34, "n_window": 4,
        "output_dim": 23,
    }  # fmt: skip
    SILENT = {"scale_embedding": True, "layerdrop": 0.5}
