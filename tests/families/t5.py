from tests.families._configs import family, without
from tests.families.gemma import GEMMA2

UNTIED = {"untied": {"tie_word_embeddings": False, "feed_forward_proj": "relu"}}
NEAR = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 11, "feed_forward_proj": "relu"}
DECODER = {**without(GEMMA2.TINY, "model_type"), "num_hidden_layers": 2}
ENCODER = {**DECODER, "hidden_size": 42, "num_hidden_layers": 3, "intermediate_size": 67, "num_key_value_heads": 3}
UNBOUNDED = {"attn_logit_softcapping": None, "final_logit_softcapping": None}

# fmt: off
T5 = family("t5", vocab_size=191, d_model=48, d_kv=10, d_ff=71, num_layers=2, num_decoder_layers=3, num_heads=6,
    n_positions=33, relative_attention_num_buckets=15, feed_forward_proj="gated-gelu", CONTEXT=512,
    VARIANTS=UNTIED, LOGITS={"of few near distances": NEAR},
    REQUIRED={"vocab_size": 37, "d_model": 48, "num_layers": 2, "num_heads": 5},
    SILENT={"is_gated_act": True})
MT5 = family("mt5", T5, VARIANTS=UNTIED, LOGITS={"of few near distances": NEAR},
    SILENT={"is_gated_act": True, "tokenizer_class": "T5Tokenizer"})
family("umt5", MT5, VARIANTS=UNTIED, LOGITS={"of few near distances": NEAR})
family("t5gemma", vocab_size=113, encoder=ENCODER, decoder=DECODER, pad_token_id=0, CONTEXT=8192,
    VARIANTS={"untied, of one width": {"encoder": DECODER, "tie_word_embeddings": False}},
    LOGITS={"unbounded": {"encoder": {**ENCODER, **UNBOUNDED}, "decoder": {**DECODER, **UNBOUNDED}}},
    REQUIRED={}, SILENT={"initializer_range": 0.3})
