"""Test configs of the audio lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, some
from tests.families._towers import blocks


class VoxtralEncoder:
    TINY = {
        "model_type": "voxtral_encoder", "num_mel_bins": 11, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_source_positions": 19,
    }  # fmt: skip
    SILENT = {"scale_embedding": True, "vocab_size": 51866, "layerdrop": 0.5}
    CONTEXT = 1500

    def drawn(draw: Draw) -> Fields:
        fields = {**blocks(draw, "vocab_size", "hidden_act"), "max_source_positions": draw(st.integers(1, 14))}
        return some(draw, fields, num_mel_bins=SMALL)


class Qwen2AudioEncoder(VoxtralEncoder):
    TINY = {**VoxtralEncoder.TINY, "model_type": "qwen2_audio_encoder", "max_source_positions": 34}

    def drawn(draw: Draw) -> Fields:
        fields = VoxtralEncoder.drawn(draw)
        return {**fields, "max_source_positions": 2 * fields["max_source_positions"]}


class AudioFlamingo3Encoder(Qwen2AudioEncoder):
    TINY = {**Qwen2AudioEncoder.TINY, "model_type": "audioflamingo3_encoder"}
    SILENT = {"scale_embedding": True, "layerdrop": 0.5}


class Qwen2_5OmniAudio(VoxtralEncoder):
    TINY = {
        **VoxtralEncoder.TINY, "model_type": "qwen2_5_omni_audio_encoder", "max_source_positions": 34, "n_window": 4,
        "output_dim": 23,
    }  # fmt: skip
    SILENT = {"scale_embedding": True, "layerdrop": 0.5}

    def drawn(draw: Draw) -> Fields:
        fields = VoxtralEncoder.drawn(draw)
        each, hidden = draw(st.integers(1, 5)), 2 * fields["num_attention_heads"] * draw(st.integers(1, 4))
        sizes = {
            "max_source_positions": each * draw(st.integers(2, 5)),
            "n_window": each,
            "hidden_size": max(hidden, 4),
        }
        return some(draw, {**fields, **sizes}, output_dim=WIDTH)
