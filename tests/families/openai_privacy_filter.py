"""OpenAI's privacy filter: gpt-oss's blocks, with a window both ways."""

from tests.families import gpt_oss
from tests.families._drawing import ON, WINDOW, Draw, Fields, experts, llama_like, some, without
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {**gpt_oss.TINY, "model_type": "openai_privacy_filter", "vocab_size": 157, "num_labels": 11, "pad_token_id": 0}
LOGITS: dict[str, Fields] = {}  # its experts have an activation of their own, which the reference lacks
REQUIRED = {"num_hidden_layers": 2}
SILENT = {"swiglu_limit": 9.0}


def drawn(draw: Draw) -> Fields:
    fields = without(llama_like(draw, null_kv=False), "tie_word_embeddings") | experts(draw, "num_local_experts")
    fields["pad_token_id"] = 0
    return some(draw, fields, attention_bias=ON, sliding_window=WINDOW)


def sized(of: Distinct) -> Sized:
    config, sizes = routed(
        grouped(of, attention_bias=of.on[1], sliding_window=of.P), of.more, "num_local_experts", "intermediate_size"
    )
    return {**without(config, "tie_word_embeddings"), "num_labels": of.J}, {**sizes, "T": of.S, "Y": of.J}
