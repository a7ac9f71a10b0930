"""Qwen3.5 with experts: in every layer, beside a shared network with a gate."""

from tests.families import qwen3_next
from tests.families._drawing import Draw, Fields, without
from tests.families._sizes import Distinct, Sized

_UNREAD = ("mlp_only_layers", "decoder_sparse_step", "intermediate_size")
TINY = {**without(qwen3_next.TINY, *_UNREAD), "model_type": "qwen3_5_moe_text"}
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
SILENT = {"attn_output_gate": True, "mtp_num_hidden_layers": 1}
REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4}


def drawn(draw: Draw) -> Fields:
    return without(qwen3_next.drawn(draw), *_UNREAD)


def sized(of: Distinct) -> Sized:
    config, sizes = qwen3_next.sized(of)
    return without(config, *_UNREAD), sizes
