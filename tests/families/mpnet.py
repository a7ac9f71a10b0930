"""MPNet: an encoder with scores of distances, and positions behind the padding token's row."""

from hypothesis import strategies as st

from tests.families import bert
from tests.families._drawing import LAYERS, Draw, Fields, some, without
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "mpnet", "vocab_size": 157, "hidden_size": 90, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 79, "max_position_embeddings": 47, "relative_attention_num_buckets": 14,
}  # fmt: skip
READ = {
    **TINY,
    "relative_attention_num_buckets": 32,
    "pad_token_id": 1,
}  # the class reads so many, whatever the config says
LOGITS = {"": READ, "relu": {**READ, "hidden_act": "relu"}}
REQUIRED = {**LAYERS, "num_attention_heads": 4}
CONTEXT = 510


def drawn(draw: Draw) -> Fields:
    fields = without(bert.drawn(draw), "type_vocab_size")
    return some(draw, fields, relative_attention_num_buckets=st.integers(4, 40))


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    del config["type_vocab_size"], sizes["Vs"]
    rows, buckets = sizes["P"] + 2, 2 * of.J
    config |= {"max_position_embeddings": rows, "relative_attention_num_buckets": buckets}
    return config, {**sizes, "P": rows, "Rp": buckets}
