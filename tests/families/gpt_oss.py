from tests.families._configs import GROUPED, PLAIN, family

# fmt: off
# The reference lacks the activation of these experts.
GPT_OSS = family("gpt_oss", GROUPED, num_hidden_layers=3, intermediate_size=37, vocab_size=151,
    max_position_embeddings=69, num_local_experts=7, num_experts_per_tok=4, sliding_window=5, LOGITS=None,
    REQUIRED=PLAIN)
family("openai_privacy_filter", GPT_OSS.TINY, vocab_size=157, num_labels=11, pad_token_id=0, LOGITS=None)
