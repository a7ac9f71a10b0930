"""XLM-RoBERTa XL: norms in front of the sublayers, none behind the tables."""

from tests.families import roberta

TINY = {**roberta.TINY, "model_type": "xlm-roberta-xl", "vocab_size": 491}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default
CONTEXT = 512
drawn, sized = roberta.drawn, roberta.sized
