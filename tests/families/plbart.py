"""PLBART: as BART, with scaled rows of tokens."""

from tests.families import bart

TINY = {**bart.TINY, "model_type": "plbart", "vocab_size": 541}
REQUIRED = {"encoder_layers": 2, "decoder_layers": 3}  # every size has a default
drawn, sized = bart.drawn, bart.sized
