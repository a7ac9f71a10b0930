"""StableLM: LayerNorms, a part of each head turned, one norm or two."""

from tests.families._drawing import ON, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, parts_of_hidden

TINY = {
    "model_type": "stablelm", "vocab_size": 293, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 73, "use_qkv_bias": True,
    "partial_rotary_factor": 0.5,
}  # fmt: skip
PARALLEL = {"parallel": {**TINY, "use_parallel_residual": True, "use_qkv_bias": False}}
VARIANTS = {**PARALLEL, "normed": {**TINY, "qk_layernorm": True}}
LOGITS = {"": TINY, **PARALLEL}  # the class has a module for the norm of each head: Cohere's are one
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False, head_dim=False)
    parts = 2 if draw(ON) else 1  # what of a head is turned has to be even
    fields["hidden_size"] *= parts
    fields["partial_rotary_factor"] = 1 / parts
    return some(draw, fields, use_qkv_bias=ON, use_parallel_residual=ON, qk_layernorm=ON)


def sized(of: Distinct) -> Sized:
    fields = {"num_key_value_heads": of.K, "intermediate_size": of.F, "partial_rotary_factor": 1.0}
    config, sizes = parts_of_hidden(of, **fields, use_qkv_bias=of.on[1], use_parallel_residual=of.on[2])
    return config, {**sizes, "Hr": of.H}
