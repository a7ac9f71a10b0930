"""Test configs of the t5 lineage: a small one of each family, and variants."""

from tests.families._configs import Fields, without
from tests.families.gemma import Gemma2


class T5:
    TINY = {
        "model_type": "t5", "vocab_size": 191, "d_model": 48, "d_kv": 10, "d_ff": 71, "num_layers": 2,
        "num_decoder_layers": 3, "num_heads": 6, "n_positions": 33, "relative_attention_num_buckets": 15,
        "feed_forward_proj": "gated-gelu",
    }  # fmt: skip
    VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False, "feed_forward_proj": "relu"}}
    NEAR = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 11}
    LOGITS = {"": TINY, "of few near distances": {**TINY, "feed_forward_proj": "relu", **NEAR}}
    SILENT = {"is_gated_act": True, "dense_act_fn": "gelu_new"}
    CONTEXT = 512
    REQUIRED = {"vocab_size": 37, "d_model": 48, "num_layers": 2, "num_heads": 5}


class MT5(T5):
    TINY = {**T5.TINY, "model_type": "mt5"}
    VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False, "feed_forward_proj": "relu"}}
    LOGITS = {"": TINY, "of few near distances": {**TINY, "feed_forward_proj": "relu", **T5.NEAR}}
    SILENT = {**T5.SILENT, "tokenizer_class": "T5Tokenizer"}


class UMT5(T5):
    TINY = {**T5.TINY, "model_type": "umt5"}
    VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False, "feed_forward_proj": "relu"}}
    LOGITS = {"": TINY, "of few near distances": {**TINY, "feed_forward_proj": "relu", **T5.NEAR}}
    SILENT = {**T5.SILENT, "tokenizer_class": "T5Tokenizer"}


class T5Gemma:
    DECODER = {**without(Gemma2.TINY, "model_type"), "num_hidden_layers": 2}
    ENCODER = {**DECODER, "hidden_size": 42, "num_hidden_layers": 3, "intermediate_size": 67, "num_key_value_heads": 3}
    TINY = {"model_type": "t5gemma", "vocab_size": 113, "encoder": ENCODER, "decoder": DECODER, "pad_token_id": 0}
    UNBOUNDED = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    VARIANTS = {"untied, of one width": {**TINY, "encoder": DECODER, "tie_word_embeddings": False}}
    LOGITS = {
        "": TINY,
        "unbounded": {**TINY, "encoder": {**ENCODER, **UNBOUNDED}, "decoder": {**DECODER, **UNBOUNDED}},
    }
    SILENT = {"initializer_range": 0.3}
    CONTEXT = 8192
    REQUIRED: Fields = {}
