"""Qwen3.5: gated DeltaNet, attention with a gate in some layers, dense networks."""

from tests.families._deltas import deltas, linear_layers, sized_deltas
from tests.families._drawing import ON, Draw, Fields, llama_like, some, without
from tests.families._sizes import Distinct, Sized, grouped
from tests.families.qwen3_next import TINY as NEXT

_EXPERTS = ("moe_intermediate_size", "shared_expert_intermediate_size", "num_experts", "num_experts_per_tok")
TINY = {
    **without(NEXT, *_EXPERTS, "mlp_only_layers"),
    "model_type": "qwen3_5_text", "attention_bias": True,
}  # fmt: skip
LOGITS = {"": TINY, "of one value head per key head": {**TINY, "linear_num_value_heads": 3}}
SILENT = {"attn_output_gate": True, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1}
REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4}


def drawn(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | {"head_dim": 8}
    return some(draw, fields | deltas(draw) | linear_layers(draw, fields), attention_bias=ON)


def sized(of: Distinct) -> Sized:
    return sized_deltas(of, *grouped(of))
