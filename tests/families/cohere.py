"""Command R: attention and network side by side, a LayerNorm without shift, scaled logits."""

from tests.families._drawing import EVEN, ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "cohere", "vocab_size": 271, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 65,
    "attention_bias": True, "logit_scale": 0.3,
}  # fmt: skip
VARIANTS = {"normed": {**TINY, "use_qk_norm": True}}
LOGITS = {"": TINY, **VARIANTS}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, llama_like(draw), attention_bias=ON, use_qk_norm=ON, head_dim=EVEN)


def sized(of: Distinct) -> Sized:
    return grouped(of, attention_bias=of.on[1])
