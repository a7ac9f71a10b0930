"""Test configs of the gpt_oss lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, PLAIN, Fields


class GptOss:
    TINY = {
        **GROUPED, "model_type": "gpt_oss", "vocab_size": 151, "num_hidden_layers": 3, "intermediate_size": 37,
        "max_position_embeddings": 69, "num_local_experts": 7, "num_experts_per_tok": 4, "sliding_window": 5,
    }  # fmt: skip
    LOGITS: dict[str, Fields] = {}  # its experts have an activation of their own, which the reference lacks
    REQUIRED = PLAIN


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
