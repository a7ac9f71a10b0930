"""BigBird with full attention: biases on queries, keys and values or not, and a pooler that nothing reads."""

from tests.families import bert
from tests.families._drawing import ON, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {**bert.TINY, "model_type": "big_bird", "vocab_size": 563, "attention_type": "original_full"}
LOGITS = {"": TINY, "scaled": {**TINY, "use_bias": False, "rescale_embeddings": True, "hidden_act": "relu"}}
SILENT = {"block_size": 16, "num_random_blocks": 2}
REQUIRED = {"num_hidden_layers": 2, "attention_type": "original_full"}


def drawn(draw: Draw) -> Fields:
    fields = {**bert.drawn(draw), "attention_type": "original_full"}
    return some(draw, fields, use_bias=ON, rescale_embeddings=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    return {**config, "attention_type": "original_full", "use_bias": of.on[0]}, sizes
