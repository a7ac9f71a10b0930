"""Test configs of the llama lineage: a small one of each family, and variants."""

from tests.families._configs import GROUPED, PLAIN


class Llama:
    TINY = {
        **GROUPED, "model_type": "llama", "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3,
        "max_position_embeddings": 53, "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip
    STRETCHED = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    """Llama 3.1's stretched angles, at a length that tiny contexts reach."""
    LOGITS = {
        "": TINY,
        "plain": {**TINY, "attention_bias": False, "mlp_bias": False, "rope_theta": 500.0},
        "stretched": {**TINY, "rope_theta": 1000.0, "rope_scaling": STRETCHED, "rms_norm_eps": 1e-3},
        "slowed": {**TINY, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "as transformers 5 spells it": {**TINY, "rope_parameters": {**STRETCHED, "rope_theta": 700.0}},
        "relu": {**TINY, "hidden_act": "relu"},
    }
    REQUIRED = {**PLAIN, "hidden_size": 64, "num_attention_heads": 4}


class Arcee:
    TINY = {
        **GROUPED, "model_type": "arcee", "vocab_size": 367, "max_position_embeddings": 107, "attention_bias": True,
        "mlp_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "without biases": {**TINY, "attention_bias": False, "mlp_bias": False}}


class Cwm:
    TINY = {
        **GROUPED, "model_type": "cwm", "vocab_size": 239, "num_hidden_layers": 3, "max_position_embeddings": 53,
        "sliding_window": 5, "mlp_bias": True,
    }  # fmt: skip


class Helium:
    TINY = {
        **GROUPED, "model_type": "helium", "vocab_size": 227, "hidden_size": 60, "max_position_embeddings": 49,
        "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip


class IQuestCoder:
    TINY = {
        **GROUPED, "model_type": "iquestcoder", "vocab_size": 223, "max_position_embeddings": 47,
        "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip
    RUN_BY = "Llama"


class SeedOss:
    TINY = {
        **GROUPED, "model_type": "seed_oss", "vocab_size": 251, "max_position_embeddings": 57,
        "attention_out_bias": True, "mlp_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "of q, k and v": {**TINY, "attention_out_bias": False, "mlp_bias": False}}


class BitNet:
    TINY = {
        "model_type": "bitnet", "vocab_size": 211, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 3, "intermediate_size": 71, "max_position_embeddings": 47, "attention_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "without biases": {**TINY, "attention_bias": False, "tie_word_embeddings": True}}


class Apertus:
    TINY = {
        **GROUPED, "model_type": "apertus", "vocab_size": 239, "intermediate_size": 73, "max_position_embeddings": 53,
        "attention_bias": True,
    }  # fmt: skip
    VARIANTS = {"plain": {**TINY, "hidden_act": "silu", "attention_bias": False}}
    LOGITS = {"": TINY, **VARIANTS}
    SILENT = {"qk_norm": True, "post_norm": False, "mlp_bias": False}


class NanoChat:
    TINY = {
        **GROUPED, "model_type": "nanochat", "vocab_size": 467, "max_position_embeddings": 39, "attention_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "not bounded": {**TINY, "final_logit_softcapping": None, "attention_bias": False}}


class Baichuan:
    TINY = {
        "model_type": "baichuan", "vocab_size": 431, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 79, "max_position_embeddings": 43,
    }  # fmt: skip
    ALIBI = {name: value for name, value in TINY.items() if name != "max_position_embeddings"}
    VARIANTS = {"ALiBi": {**ALIBI, "model_max_length": 43}}
    LOGITS = {"": TINY}  # the class of Llama has no ALiBi
    SILENT = {"z_loss_weight": 0}
    RUN_BY = "Llama"
    REQUIRED = {
        "vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 64,
        "intermediate_size": 40,
    }  # fmt: skip


class InternLM2:
    TINY = {
        **GROUPED, "model_type": "internlm2", "vocab_size": 197, "intermediate_size": 67, "max_position_embeddings": 41,
        "bias": True,
    }  # fmt: skip
    RUN_BY = "Llama"


class InternLM3:
    TINY = {
        **GROUPED, "model_type": "internlm3", "vocab_size": 211, "max_position_embeddings": 45, "qkv_bias": True,
        "bias": True,
    }  # fmt: skip
    RUN_BY = "Llama"


class DeciLM:
    TINY = {
        "model_type": "deci", "vocab_size": 463, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads_per_layer": [4, 2, 2, 4], "intermediate_size": 89, "max_position_embeddings": 53,
    }  # fmt: skip
    LOGITS = {}
    VARIANTS = {"biases": {**TINY, "attention_bias": True, "tie_word_embeddings": True}}
    SILENT = {"pretraining_tp": 1}


class Mllama:
    TINY = {
        "model_type": "mllama_text_model", "vocab_size": 61, "hidden_size": 60, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 53,
        "cross_attention_layers": [1, 3], "pad_token_id": 0,
    }  # fmt: skip
    VARIANTS = {"without an image": {**TINY, "cross_attention_layers": []}}
    SILENT = {"cross_attention_layers": [1, 3, 8]}
    REQUIRED = {**PLAIN, "num_hidden_layers": 5, "pad_token_id": 0}


class Chameleon:
    TINY = {
        "model_type": "chameleon_text", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 64,
    }  # fmt: skip
    VARIANTS = {"norms behind": {**TINY, "swin_norm": True, "attention_bias": True, "mlp_bias": True}}
    LOGITS = {"": TINY, **VARIANTS}


class AriaText:
    TINY = {
        **GROUPED, "model_type": "aria_text", "vocab_size": 151, "intermediate_size": 37, "max_position_embeddings": 69,
        "moe_num_experts": 7, "moe_topk": 4, "moe_num_shared_experts": 3, "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "moe_topk": 7}}  # the class's softmax is over the chosen ones


class Jais2:
    TINY = {**GROUPED, "model_type": "jais2", "vocab_size": 373, "max_position_embeddings": 109, "eos_token_id": 1}
    LOGITS = {"": TINY, "without biases": {**TINY, "attention_bias": False, "mlp_bias": False}}


class SmolLM3:
    TINY = {
        **GROUPED, "model_type": "smollm3", "vocab_size": 191, "num_hidden_layers": 3, "max_position_embeddings": 37,
        "attention_bias": True, "mlp_bias": True, "pad_token_id": 0, "no_rope_layer_interval": 2,
    }  # fmt: skip
    VARIANTS = {"windowed": {**TINY, "use_sliding_window": True, "sliding_window": 5}}
    LOGITS = {
        "": TINY,
        "windowed": VARIANTS["windowed"],
        "listed": {**TINY, "no_rope_layers": [0, 1, 1, 0], "attention_bias": False},
    }
