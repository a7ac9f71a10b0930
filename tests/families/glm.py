"""GLM: Llama's block, half of each head turned by neighbours."""

from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "glm", "vocab_size": 317, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 71, "max_position_embeddings": 91,
    "pad_token_id": 0,
}  # fmt: skip
LOGITS = {"": TINY, "whole": {**TINY, "attention_bias": False, "partial_rotary_factor": 1.0}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = {**llama_like(draw, null_kv=False), "pad_token_id": 0}  # whose default is past a small vocabulary
    fields["head_dim"], whole = draw(EVEN), draw(ON)
    fields |= {"partial_rotary_factor": 1.0} if whole else {"head_dim": 2 * fields["head_dim"]}
    return some(draw, fields, attention_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1], partial_rotary_factor=1.0)
    return config, {**sizes, "Hr": of.H}
