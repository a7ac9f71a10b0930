"""Test configs of the audio lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, of_heads
from tests.families._towers import LAYERS_ONLY, blocks


class VoxtralEncoder:
    TINY = {
        "model_type": "voxtral_encoder", "num_mel_bins": 11, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_source_positions": 19,
    }  # fmt: skip
    SILENT = {"scale_embedding": True, "vocab_size": 51866, "layerdrop": 0.5}
    CONTEXT = 1500
    REQUIRED = LAYERS_ONLY

    def drawn(draw: Draw) -> Fields:
        fields = {**blocks(draw, "vocab_size", "hidden_act"), "max_source_positions": draw(st.integers(1, 14))}
        return some(draw, fields, num_mel_bins=SMALL)

    def sized(of: Distinct) -> Sized:
        config, sizes = of_heads(of, "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size")
        config |= {"max_source_positions": of.P, "num_mel_bins": of.more[2]}
        del config["vocab_size"], sizes["V"]
        more = {"P": of.P, "Mf": of.more[2], "Fp": 2, "Kf": 3, "Dk": 3 * sizes["D"], "T": of.S}
        return config, {**sizes, **more}


class Qwen2AudioEncoder:
    TINY = {**VoxtralEncoder.TINY, "model_type": "qwen2_audio_encoder", "max_source_positions": 34}
    SILENT = VoxtralEncoder.SILENT
    CONTEXT = VoxtralEncoder.CONTEXT
    REQUIRED = VoxtralEncoder.REQUIRED

    def drawn(draw: Draw) -> Fields:
        fields = VoxtralEncoder.drawn(draw)
        return {**fields, "max_source_positions": 2 * fields["max_source_positions"]}

    def sized(of: Distinct) -> Sized:
        config, sizes = VoxtralEncoder.sized(of)
        config["max_source_positions"] = 2 * of.P
        return config, {**sizes, "P": 2 * of.P, "T": 2 * of.S, "S": 2 * of.S, "Mp": 2, "Tm": of.S}


class AudioFlamingo3Encoder:
    TINY = {**Qwen2AudioEncoder.TINY, "model_type": "audioflamingo3_encoder"}
    SILENT = {"scale_embedding": True, "layerdrop": 0.5}
    CONTEXT = Qwen2AudioEncoder.CONTEXT
    REQUIRED = Qwen2AudioEncoder.REQUIRED
    drawn = Qwen2AudioEncoder.drawn
    sized = Qwen2AudioEncoder.sized


class Qwen2_5OmniAudio:
    TINY = {
        **VoxtralEncoder.TINY, "model_type": "qwen2_5_omni_audio_encoder", "max_source_positions": 34, "n_window": 4,
        "output_dim": 23,
    }  # fmt: skip
    SILENT = {"scale_embedding": True, "layerdrop": 0.5}
    CONTEXT = VoxtralEncoder.CONTEXT
    REQUIRED = VoxtralEncoder.REQUIRED

    def drawn(draw: Draw) -> Fields:
        fields = VoxtralEncoder.drawn(draw)
        each, hidden = draw(st.integers(1, 5)), 2 * fields["num_attention_heads"] * draw(st.integers(1, 4))
        sizes = {
            "max_source_positions": each * draw(st.integers(2, 5)),
            "n_window": each,
            "hidden_size": max(hidden, 4),
        }
        return some(draw, {**fields, **sizes}, output_dim=WIDTH)

    def sized(of: Distinct) -> Sized:
        config, sizes = VoxtralEncoder.sized(of)
        chunk = 2 + of.seed % 3
        count = 2 * chunk * of.S
        del sizes["P"]
        config |= {"max_source_positions": count, "n_window": chunk, "output_dim": of.V}
        return config, {
            **sizes,
            "Wp": chunk,
            "Wk": chunk,
            "T": count,
            "S": count,
            "Mp": 2,
            "Dq": of.V,
            "Xe": 2,
            "Tm": count // 2,
        }
