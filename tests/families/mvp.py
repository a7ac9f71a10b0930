"""MVP: as BART."""

from tests.families import bart

TINY = {**bart.TINY, "model_type": "mvp", "vocab_size": 547}
SILENT = {"prompt_length": 7, "prompt_mid_dim": 9}
REQUIRED = {"encoder_layers": 2, "decoder_layers": 3}  # every size has a default
drawn, sized = bart.drawn, bart.sized
