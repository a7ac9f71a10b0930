"""Jina Embeddings v3: XLM-RoBERTa with rotary positions."""

from tests.families import nomic_bert
from tests.families._drawing import LAYERS, Draw, Fields
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "jina_embeddings_v3", "vocab_size": 181, "hidden_size": 60, "num_hidden_layers": 2,
    "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3,
}  # fmt: skip
LOGITS = {"": TINY, "of other heads": {**TINY, "head_dim": 14, "hidden_act": "relu", "layer_norm_eps": 1e-3}}
REQUIRED = {**LAYERS, "num_attention_heads": 4}


def drawn(draw: Draw) -> Fields:
    return nomic_bert.drawn(draw)


def sized(of: Distinct) -> Sized:
    return nomic_bert.sized(of)
