"""XLM-RoBERTa: as RoBERTa."""

from tests.families import roberta

TINY = {**roberta.TINY, "model_type": "xlm-roberta", "vocab_size": 173}
REQUIRED, CONTEXT = roberta.REQUIRED, roberta.CONTEXT
drawn, sized = roberta.drawn, roberta.sized
