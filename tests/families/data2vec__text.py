"""data2vec for text: as RoBERTa."""

from tests.families import roberta

TINY = {**roberta.TINY, "model_type": "data2vec-text", "vocab_size": 401}
REQUIRED, CONTEXT = roberta.REQUIRED, roberta.CONTEXT
drawn, sized = roberta.drawn, roberta.sized
