"""DiffLlama: heads subtracted in pairs, of an even number of key heads."""

from tests.families._drawing import ON, SMALL, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "diffllama", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 12,
    "num_key_value_heads": 4, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 63,
    "attention_bias": True,
}  # fmt: skip
LOGITS = {"": TINY, "ungrouped": {**TINY, "num_key_value_heads": 12, "attention_bias": False}}
SILENT = {"lambda_std_dev": 0.3}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields, kv = llama_like(draw, null_kv=False), 2 * draw(SMALL)
    heads = kv * draw(SMALL)
    fields |= {"num_key_value_heads": kv, "num_attention_heads": heads, "hidden_size": heads * 2 * draw(SMALL)}
    return some(draw, fields, attention_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1])
    config |= {"num_key_value_heads": 2 * of.K, "num_attention_heads": 2 * of.K * of.G}
    return config, {**sizes, "K": 2 * of.K, "N": 2 * of.K * of.G}
