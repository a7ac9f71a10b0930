"""Test configs of the gpt lineage: a small one of each family, and variants."""

from tests.families._configs import LAYERS, PLAIN, without


class GPT2:
    TINY = {
        "model_type": "gpt2", "vocab_size": 59, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 37,
        "n_inner": 67,
    }  # fmt: skip
    LOGITS = {"": TINY, "gelu": {**TINY, "activation_function": "gelu", "layer_norm_epsilon": 1e-3}}
    REQUIRED = {"vocab_size": 37, "n_embd": 48, "n_layer": 2, "n_head": 4}


class GPTBigCode:
    TINY = {
        "model_type": "gpt_bigcode", "vocab_size": 307, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 79,
        "n_inner": 67,
    }  # fmt: skip
    VARIANTS = {"of many heads": {**TINY, "multi_query": False, "tie_word_embeddings": False}}
    LOGITS = {"": TINY}
    REQUIRED = {"n_layer": 2}  # every size has a default


class GPTNeo:
    TINY = {
        "model_type": "gpt_neo", "vocab_size": 353, "hidden_size": 42, "num_layers": 2, "num_heads": 6,
        "intermediate_size": 67, "max_position_embeddings": 101, "window_size": 5,
        "attention_types": [[["global", "local"], 1]],
    }  # fmt: skip
    REQUIRED = {"num_layers": 2, "attention_types": [[["global", "local"], 1]]}  # every size has a default


class GPTJ:
    TINY = {
        "model_type": "gptj", "vocab_size": 311, "n_embd": 60, "n_layer": 2, "n_head": 6, "n_positions": 83,
        "n_inner": 67, "rotary_dim": 4,
    }  # fmt: skip
    REQUIRED = {"n_layer": 2}  # every size has a default


class CodeGen(GPTJ):
    TINY = {
        "model_type": "codegen", "vocab_size": 313, "n_embd": 80, "n_layer": 2, "n_head": 8, "n_positions": 89,
        "n_inner": 67, "rotary_dim": 6,
    }  # fmt: skip
    LOGITS = {}  # its matrix holds q, v and k in four parts


class OpenAIGPT:
    TINY = {"model_type": "openai-gpt", "vocab_size": 461, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 37}
    LOGITS = {"": TINY, "relu": {**TINY, "afn": "relu", "layer_norm_epsilon": 1e-3}}
    REQUIRED = {"n_layer": 2}  # every size has a default


class CTRL:
    TINY = {
        "model_type": "ctrl", "vocab_size": 463, "n_embd": 42, "n_layer": 2, "n_head": 6, "dff": 71, "n_positions": 37,
    }  # fmt: skip
    LOGITS = {"": TINY, "of odd width": {**TINY, "n_embd": 45, "n_head": 5, "layer_norm_epsilon": 1e-3}}
    REQUIRED = {"n_layer": 2}  # every size has a default


class JAIS:
    LEARNED = {
        "model_type": "jais", "vocab_size": 449, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 37,
        "n_inner": 67, "mup_embeddings_scale": 9.1, "mup_scale_qk_dot_by_d": True, "mup_width_scale": 0.2,
        "mup_output_alpha": 1.1,
    }  # fmt: skip
    TINY = {**LEARNED, "position_embedding_type": "alibi", "activation_function": "swiglu"}
    LOGITS = {}
    VARIANTS = {"learned positions": LEARNED}
    SILENT = {"scale_attn_weights": True}


class CS336:
    TINY = {
        "model_type": "cs336", "vocab_size": 83, "context_length": 41, "num_layers": 2, "d_model": 48, "num_heads": 8,
        "d_ff": 89,
    }  # fmt: skip
    LOGITS = {}


class GPTNeoX:
    TINY = {
        "model_type": "gpt_neox", "vocab_size": 157, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 45, "rotary_pct": 0.4,
    }  # fmt: skip
    VARIANTS = {"sequential": {**TINY, "use_parallel_residual": False, "attention_bias": False}}
    LOGITS = {"": TINY, **VARIANTS}
    BY_HEAD = True
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class GPTNeoXJapanese:
    TINY = {
        "model_type": "gpt_neox_japanese", "vocab_size": 463, "hidden_size": 60, "num_hidden_layers": 3,
        "num_attention_heads": 6, "intermediate_multiple_size": 3, "max_position_embeddings": 45, "rotary_pct": 0.4,
    }  # fmt: skip
    BY_HEAD = True


class Bloom:
    TINY = {
        "model_type": "bloom", "vocab_size": 173, "hidden_size": 60, "n_layer": 2, "n_head": 6, "seq_length": 35,
    }  # fmt: skip
    LOGITS = {"": TINY, "of six heads untied": {**TINY, "tie_word_embeddings": False}}
    CONTEXT = 2048
    BY_HEAD = True
    REQUIRED = {"vocab_size": 37, "hidden_size": 60, "n_layer": 2, "n_head": 6}


class Falcon:
    TINY = {
        "model_type": "falcon", "vocab_size": 163, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_kv_heads": 2, "new_decoder_architecture": True, "ffn_hidden_size": 71,
        "max_position_embeddings": 39,
    }  # fmt: skip
    ONE_KEY_HEAD = {**without(TINY, "num_kv_heads"), "new_decoder_architecture": False}
    VARIANTS = {
        "one key head": ONE_KEY_HEAD,
        "ALiBi": {**ONE_KEY_HEAD, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True},
    }
    # ALiBi is left out: the class scales the distances too, and rounds them to bfloat16.
    LOGITS = {
        "": TINY,
        "one norm": {**TINY, "num_ln_in_parallel_attn": 1},
        "one key head": ONE_KEY_HEAD,
        "every head its keys": {**ONE_KEY_HEAD, "multi_query": False, "bias": True},
        "sequential": {**ONE_KEY_HEAD, "parallel_attn": False},
    }
    SILENT = {"n_head": 6, "n_layer": 2, "n_embed": 60, "n_head_kv": 2, "n_inner": 71}
    BY_HEAD = True
    REQUIRED = PLAIN


class Mpt:
    TINY = {"model_type": "mpt", "vocab_size": 349, "d_model": 42, "n_layers": 2, "n_heads": 6, "max_seq_len": 99}
    LOGITS = {"": TINY, "bounded": {**TINY, "attn_config": {"clip_qkv": 0.7, "softmax_scale": 0.3}}}
    REQUIRED = {"n_layers": 2}  # every size has a default
    CONTEXT = 2048


class OPT:
    TINY = {
        "model_type": "opt", "vocab_size": 167, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "ffn_dim": 71, "max_position_embeddings": 59,
    }  # fmt: skip
    VARIANTS = {"post-norm": {**TINY, "word_embed_proj_dim": 22, "do_layer_norm_before": False}}
    LOGITS = {
        "": TINY,
        **VARIANTS,
        "without biases": {**TINY, "enable_bias": False, "_remove_final_layer_norm": True},
    }
    REQUIRED = PLAIN


class OpenELM:
    TINY = {
        "model_type": "openelm", "vocab_size": 467, "model_dim": 44, "num_transformer_layers": 3, "head_dim": 14,
        "max_context_length": 59, "num_query_heads": [6, 12, 12], "num_kv_heads": [2, 3, 3],
        "ffn_multipliers": [0.5, 1.3, 2.0], "ffn_dim_divisor": 16, "ffn_with_glu": True,
        "normalize_qk_projections": True, "share_input_output_layers": True,
    }  # fmt: skip
    LOGITS = {}
    VARIANTS = {
        "untied": {
            **TINY, "ffn_with_glu": False, "normalize_qk_projections": False, "share_input_output_layers": False,
        }
    }  # fmt: skip
    SILENT = {"num_gqa_groups": 4, "qkv_multipliers": [0.5, 1.0], "rope_max_length": 4096}


class Telechat:
    TINY = {
        "model_type": "telechat", "vocab_size": 457, "hidden_size": 60, "n_layer": 2, "n_head": 6,
        "num_key_value_heads": 3, "ffn_hidden_size": 83, "max_position_embeddings": 43, "tie_word_embeddings": False,
    }  # fmt: skip
    LOGITS = {}
    VARIANTS = {"tied": {**TINY, "num_key_value_heads": None, "tie_word_embeddings": True}}
    SILENT = {"logn": True, "intermediate_size": 1}


class BioGpt:
    TINY = {
        "model_type": "biogpt", "vocab_size": 449, "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "max_position_embeddings": 37, "pad_token_id": 0,
    }  # fmt: skip
    LOGITS = {"": TINY, "not scaled": {**TINY, "scale_embedding": False, "hidden_act": "relu"}}
    SILENT = {"layerdrop": 0.1}


class XGLM:
    TINY = {
        "model_type": "xglm", "vocab_size": 457, "d_model": 42, "num_layers": 2, "attention_heads": 6, "ffn_dim": 71,
        "max_position_embeddings": 21, "pad_token_id": 1,
    }  # fmt: skip
    LOGITS = {"": TINY, "not scaled": {**TINY, "scale_embedding": False, "activation_function": "relu"}}
    SILENT = {"layerdrop": 0.1, "init_std": 0.3}
    REQUIRED = {"num_layers": 2}  # every size has a default
