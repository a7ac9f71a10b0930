"""nanochat: norms without weights, angles that turn the other way, bounded logits."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "nanochat", "vocab_size": 467, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 39,
    "attention_bias": True,
}  # fmt: skip
LOGITS = {"": TINY, "not bounded": {**TINY, "final_logit_softcapping": None, "attention_bias": False}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    bound = st.none() | st.just(30.0)
    return some(draw, llama_like(draw), attention_bias=ON, head_dim=EVEN, final_logit_softcapping=bound)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1])
