"""Test configs of the gpt_oss lineage: a small one of each family, variants, random ones, distinct sizes."""

from tests.families._drawing import ON, PLAIN, WINDOW, Draw, Fields, experts, layer_types, llama_like, some, without


class GptOss:
    TINY = {
        "model_type": "gpt_oss", "vocab_size": 151, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37,
        "max_position_embeddings": 69, "num_local_experts": 7, "num_experts_per_tok": 4, "sliding_window": 5,
    }  # fmt: skip
    LOGITS: dict[str, Fields] = {}  # its experts have an activation of their own, which the reference lacks
    REQUIRED = PLAIN

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, null_kv=False) | experts(draw, "num_local_experts")
        return some(draw, layer_types(draw, fields | {"sliding_window": draw(WINDOW)}), attention_bias=ON)


class OpenAIPrivacyFilter:
    TINY = {
        **GptOss.TINY,
        "model_type": "openai_privacy_filter",
        "vocab_size": 157,
        "num_labels": 11,
        "pad_token_id": 0,
    }
    LOGITS: dict[str, Fields] = {}  # its experts have an activation of their own, which the reference lacks
    SILENT = {"swiglu_limit": 9.0}

    def drawn(draw: Draw) -> Fields:
        fields = without(llama_like(draw, null_kv=False), "tie_word_embeddings") | experts(draw, "num_local_experts")
        fields["pad_token_id"] = 0
        return some(draw, fields, attention_bias=ON, sliding_window=WINDOW)
