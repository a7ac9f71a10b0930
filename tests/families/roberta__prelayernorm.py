"""RoBERTa with norms in front of the sublayers."""

from tests.families import roberta

TINY = {**roberta.TINY, "model_type": "roberta-prelayernorm", "vocab_size": 487}
REQUIRED, CONTEXT = roberta.REQUIRED, roberta.CONTEXT
drawn, sized = roberta.drawn, roberta.sized
