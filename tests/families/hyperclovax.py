"""HyperCLOVA X: Granite with a norm behind attention and network."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "hyperclovax", "vocab_size": 197, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 41,
    "embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.22, "attention_multiplier": 0.13,
    "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
VARIANTS = {"norms in front only": {**TINY, "use_post_norm": False}}
LOGITS = {"": TINY, "in front only": {**VARIANTS["norms in front only"], "attention_multiplier": None}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = some(draw, llama_like(draw), attention_bias=ON, mlp_bias=ON, head_dim=st.none() | EVEN)
    return some(draw, fields, use_post_norm=ON)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1], mlp_bias=of.on[2], use_post_norm=of.seed % 2 == 0)
