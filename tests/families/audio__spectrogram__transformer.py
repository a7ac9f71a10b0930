"""AST: patches of a spectrogram that overlap, and two tokens in front of them."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, Draw, Fields, some
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import blocks, image_sizes

TINY = {
    "model_type": "audio-spectrogram-transformer", "hidden_size": 42, "num_hidden_layers": 2,
    "num_attention_heads": 6, "intermediate_size": 71, "patch_size": 5, "frequency_stride": 3, "time_stride": 4,
    "max_length": 22, "num_mel_bins": 13,
}  # fmt: skip
VARIANTS = {
    "classes": {**TINY, "architectures": ["ASTForAudioClassification"], "num_labels": 11},
    "without biases": {**TINY, "qkv_bias": False},
}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 1214


def drawn(draw: Draw) -> Fields:
    patch = draw(SMALL)
    sides = {name: patch + draw(st.integers(0, 9)) for name in ("max_length", "num_mel_bins")}
    fields = {**blocks(draw, "vocab_size"), "patch_size": patch, **sides}
    return some(draw, fields, frequency_stride=SMALL, time_stride=SMALL, qkv_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = image_sizes(of, front=2)
    side, patch = of.more[0], of.J
    own = {"max_length": side * patch, "num_mel_bins": side * patch}
    own |= dict.fromkeys(("frequency_stride", "time_stride"), patch)
    config = {name: value for name, value in config.items() if name not in ("image_size", "num_channels")}
    return {**config, **own}, {**sizes, "Cc": 1, "U": 1}
