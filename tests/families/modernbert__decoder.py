"""ModernBERT's decoder: causal, windows of half the size that is said, and a first block of its own."""

from hypothesis import strategies as st

from tests.families import modernbert
from tests.families._drawing import Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized

TINY = {**modernbert.TINY, "model_type": "modernbert-decoder", "local_attention": 11}
VARIANTS = {"with biases": {**TINY, **modernbert.BIASED, "tie_word_embeddings": False}}
LOGITS = {"": TINY, "with biases": {**VARIANTS["with biases"], "global_attn_every_n_layers": 2, "local_attention": 8}}
SILENT = {**modernbert.SILENT, "classifier_pooling": "mean"}
REQUIRED = modernbert.REQUIRED


def drawn(draw: Draw) -> Fields:
    fields = without(modernbert.drawn(draw), "local_attention", "classifier_pooling")
    return some(draw, fields, local_attention=st.integers(4, 18))


def sized(of: Distinct) -> Sized:
    """One block: all others have a norm more."""
    config, sizes = modernbert.sized(of)
    return config, {**sizes, "T": of.T}
