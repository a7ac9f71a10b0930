"""CamemBERT: as RoBERTa."""

from tests.families import roberta

TINY = {**roberta.TINY, "model_type": "camembert", "vocab_size": 167}
REQUIRED, CONTEXT = roberta.REQUIRED, roberta.CONTEXT
drawn, sized = roberta.drawn, roberta.sized
