"""Megatron's BERT: norms in front of the sublayers."""

from tests.families import bert

TINY = {**bert.TINY, "model_type": "megatron-bert", "vocab_size": 479}
LOGITS = {"": TINY, "relu": {**TINY, "hidden_act": "relu", "layer_norm_eps": 1e-3}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default
drawn, sized = bert.drawn, bert.sized
