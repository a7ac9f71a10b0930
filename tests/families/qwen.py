"""Qwen 1: Qwen2 whose heads have their own keys; half of intermediate_size is the width."""

from tests.families._drawing import EVEN, SMALL, Draw, Fields, of_whole_heads
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "qwen", "vocab_size": 433, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
    "kv_channels": 10, "intermediate_size": 2 * 83, "max_position_embeddings": 43, "no_bias": True, "rotary_pct": 0.8,
}  # fmt: skip
SILENT = {"bf16": True, "seq_length": 43, "use_logn_attn": True, "rotary_emb_base": 10000, "padded_vocab_size": 433}
LOGITS = {"": {**TINY, "rotary_pct": 1.0}}  # as Qwen2's class turns a head
RUN_BY = "Qwen2"
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = of_whole_heads(draw, EVEN)
    own = {"kv_channels": fields["hidden_size"] // fields["num_attention_heads"]}
    return {**fields, **own, "intermediate_size": 1 + draw(SMALL)}


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    config, sizes = of_heads(of, names, kv_channels=of.H, tie_word_embeddings=of.on[0])
    return {**config, "intermediate_size": 2 * of.F}, sizes
