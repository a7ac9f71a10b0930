"""Test configs of the rotary_bert lineage: a small one of each family, and variants."""

from tests.families._configs import LAYERS, SIZES
from tests.families.llama import Llama


class Gte:
    TINY = {
        "model_type": "gte", "vocab_size": 181, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3, "pad_token_id": 0,
    }  # fmt: skip
    VARIANTS = {"without segments": {**TINY, "type_vocab_size": 0}}
    LOGITS = {"": TINY, "without segments": {**VARIANTS["without segments"], "hidden_act": "relu"}}
    SILENT = {"hidden_dropout_prob": 0.2, "classifier_dropout": 0.5}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class JinaBert:
    TINY = {
        **SIZES, "model_type": "jina_bert", "vocab_size": 181, "hidden_size": 42, "max_position_embeddings": 37,
        "type_vocab_size": 3, "feed_forward_type": "geglu", "position_embedding_type": "alibi",
    }  # fmt: skip
    LOGITS = {}
    VARIANTS = {"normed": {**TINY, "query_key_norm": True, "position_embedding_type": "absolute"}}
    SILENT = {"emb_pooler": "mean", "attn_implementation": "torch"}


class JinaEmbeddingsV3:
    TINY = {
        "model_type": "jina_embeddings_v3", "vocab_size": 181, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3,
    }  # fmt: skip
    LOGITS = {"": TINY, "of other heads": {**TINY, "head_dim": 14, "hidden_act": "relu", "layer_norm_eps": 1e-3}}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class NomicBert:
    TINY = {
        "model_type": "nomic_bert", "vocab_size": 181, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3,
    }  # fmt: skip
    VARIANTS = {
        "with experts": {
            **TINY, "architectures": ["NomicBertModel"], "activation_function": "gelu", "qkv_proj_bias": True,
            "mlp_fc1_bias": True, "mlp_fc2_bias": True, "num_experts": 5, "moe_top_k": 2, "moe_every_n_layers": 2,
        },
    }  # fmt: skip
    LOGITS = {"": TINY, "of other heads": {**TINY, "head_dim": 14, "hidden_act": "gelu", "layer_norm_eps": 1e-3}}
    SILENT = {"qkv_proj_bias": False, "rotary_emb_fraction": 1.0, "prenorm": False, "use_flash_attn": True}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class ModernBert:
    TINY = {
        "model_type": "modernbert", "vocab_size": 139, "hidden_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 59, "local_attention": 6,
        "pad_token_id": 0,
    }  # fmt: skip
    BIASED = {
        "norm_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
        "classifier_bias": True,
        "decoder_bias": False,
    }
    VARIANTS = {"with biases": {**TINY, **BIASED, "tie_word_embeddings": False}}
    LOGITS = {
        "": TINY,
        "with biases": {**VARIANTS["with biases"], "global_attn_every_n_layers": 2, "local_attention": 9},
    }
    SILENT = {"reference_compile": False, "initializer_cutoff_factor": 2.0, "sparse_prediction": False}
    REQUIRED = {**LAYERS, "num_attention_heads": 4, "pad_token_id": 0}


class ModernBertDecoder(ModernBert):
    TINY = {**ModernBert.TINY, "model_type": "modernbert-decoder", "local_attention": 11}
    VARIANTS = {"with biases": {**TINY, **ModernBert.BIASED, "tie_word_embeddings": False}}
    LOGITS = {
        "": TINY,
        "with biases": {**VARIANTS["with biases"], "global_attn_every_n_layers": 2, "local_attention": 8},
    }
    SILENT = {**ModernBert.SILENT, "classifier_pooling": "mean"}


class EuroBert:
    TINY = {**Llama.TINY, "model_type": "eurobert", "pad_token_id": 0}
    LOGITS = {
        "": TINY,
        "tied": {**TINY, "mlp_bias": False, "tie_word_embeddings": True, "hidden_act": "relu", "rope_theta": 500.0},
    }
    SILENT = {"mask_token_id": 3}
    REQUIRED = {**Llama.REQUIRED, "pad_token_id": 0}


class Esm:
    TINY = {
        "model_type": "esm", "vocab_size": 521, "hidden_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6,
        "intermediate_size": 71, "max_position_embeddings": 41, "pad_token_id": 1, "mask_token_id": 520,
        "position_embedding_type": "rotary", "token_dropout": True, "emb_layer_norm_before": False,
    }  # fmt: skip
    TABLE = {**TINY, "position_embedding_type": "absolute", "emb_layer_norm_before": True, "token_dropout": False}
    VARIANTS = {"with a table of positions": TABLE}
    LOGITS = {"": TINY, **VARIANTS}
    SILENT = {"vocab_list": ["A", "C"], "hidden_act": "relu"}
    REQUIRED = {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32, "num_hidden_layers": 2}
    CONTEXT = 1024


class Esmc:
    TINY = {
        "model_type": "esmc", "vocab_size": 61, "hidden_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6,
        "intermediate_size": 71, "max_position_embeddings": 53, "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip
    LOGITS = {
        "": TINY,
        "plain": {**TINY, "attention_bias": False, "mlp_bias": False, "hidden_act": "relu", "rope_theta": 500.0},
    }
    SILENT = {"mask_token_id": 3}
