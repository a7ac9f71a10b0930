"""EuroBERT: Llama's blocks as an encoder."""

from hypothesis import strategies as st

from tests.families import llama
from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {**llama.TINY, "model_type": "eurobert", "pad_token_id": 0}
LOGITS = {
    "": TINY,
    "tied": {**TINY, "mlp_bias": False, "tie_word_embeddings": True, "hidden_act": "relu", "rope_theta": 500.0},
}
SILENT = {"mask_token_id": 3}
REQUIRED = {**llama.REQUIRED, "pad_token_id": 0}


def drawn(draw: Draw) -> Fields:
    pooling = st.sampled_from(["bos", "mean", "late"])
    fields = {**llama_like(draw), "pad_token_id": 0}
    return some(draw, fields, attention_bias=ON, mlp_bias=ON, head_dim=st.none() | EVEN, classifier_pooling=pooling)


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1], mlp_bias=of.on[2], pad_token_id=0)
    return config, {**sizes, "T": of.S}
