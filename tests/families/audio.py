from tests.families._configs import SIZES, family

# fmt: off
VOXTRAL_ENCODER = family("voxtral_encoder", SIZES, hidden_size=60, num_mel_bins=11, max_source_positions=19,
    CONTEXT=1500)
QWEN2_AUDIO_ENCODER = family("qwen2_audio_encoder", VOXTRAL_ENCODER, max_source_positions=34)
AUDIOFLAMINGO3_ENCODER = family("audioflamingo3_encoder", QWEN2_AUDIO_ENCODER)
family("qwen2_5_omni_audio_encoder", AUDIOFLAMINGO3_ENCODER, n_window=4, output_dim=23)
