"""RoBERTa: BERT's encoder, positions behind the padding token's row."""

from hypothesis import strategies as st

from tests.families import bert
from tests.families._drawing import LAYERS, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "roberta", "vocab_size": 179, "hidden_size": 84, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 73, "max_position_embeddings": 41, "type_vocab_size": 3, "pad_token_id": 4,
}  # fmt: skip
LOGITS = {"": TINY, "of one segment": {**TINY, "type_vocab_size": 1, "pad_token_id": 1, "hidden_act": "relu"}}
REQUIRED = {**LAYERS, "num_attention_heads": 4}
CONTEXT = 510


def drawn(draw: Draw) -> Fields:
    return some(draw, bert.drawn(draw), pad_token_id=st.integers(0, 3))


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    rows = sizes["P"] + 2 + of.seed % 3
    config |= {"max_position_embeddings": rows, "pad_token_id": of.seed % 3}
    return config, {**sizes, "P": rows}
