"""Test configs of the llama lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import (
    EVEN,
    ON,
    PLAIN,
    SMALL,
    WIDTH,
    WINDOW,
    Draw,
    Fields,
    layer_types,
    llama_like,
    of_whole_heads,
    some,
    without,
)


class Llama:
    TINY = {
        "model_type": "llama", "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 53,
        "attention_bias": True, "mlp_bias": True,
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

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw), attention_bias=ON, mlp_bias=ON, head_dim=st.none() | EVEN)


class Arcee:
    TINY = {
        "model_type": "arcee", "vocab_size": 367, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 107,
        "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "without biases": {**TINY, "attention_bias": False, "mlp_bias": False}}

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw), attention_bias=ON, mlp_bias=ON)


class Cwm:
    TINY = {
        "model_type": "cwm", "vocab_size": 239, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 53,
        "sliding_window": 5, "mlp_bias": True,
    }  # fmt: skip

    def drawn(draw: Draw) -> Fields:
        fields = layer_types(draw, llama_like(draw, null_kv=False) | {"sliding_window": draw(WINDOW)})
        return some(draw, fields, mlp_bias=ON)


class Helium:
    TINY = {
        "model_type": "helium", "vocab_size": 227, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 49,
        "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, null_kv=False, head_dim=False)
        fields["head_dim"] = fields["hidden_size"] // fields["num_attention_heads"]  # 128 if absent, which seldom fits
        return some(draw, fields, attention_bias=ON, mlp_bias=ON)


class IQuestCoder:
    TINY = {
        "model_type": "iquestcoder", "vocab_size": 223, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 47, "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip
    RUN_BY = "Llama"

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw), attention_bias=ON, mlp_bias=ON, head_dim=st.none() | EVEN)


class SeedOss:
    TINY = {
        "model_type": "seed_oss", "vocab_size": 251, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 57, "attention_out_bias": True, "mlp_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "of q, k and v": {**TINY, "attention_out_bias": False, "mlp_bias": False}}

    def drawn(draw: Draw) -> Fields:
        biases = {"attention_bias": ON, "attention_out_bias": ON, "mlp_bias": ON}
        return some(draw, llama_like(draw), **biases, head_dim=st.none() | EVEN)


class BitNet:
    TINY = {
        "model_type": "bitnet", "vocab_size": 211, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 3, "intermediate_size": 71, "max_position_embeddings": 47, "attention_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "without biases": {**TINY, "attention_bias": False, "tie_word_embeddings": True}}

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw, head_dim=False), attention_bias=ON)


class Apertus:
    TINY = {
        "model_type": "apertus", "vocab_size": 239, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 73, "max_position_embeddings": 53,
        "attention_bias": True,
    }  # fmt: skip
    VARIANTS = {"plain": {**TINY, "hidden_act": "silu", "attention_bias": False}}
    LOGITS = {"": TINY, **VARIANTS}
    SILENT = {"qk_norm": True, "post_norm": False, "mlp_bias": False}

    def drawn(draw: Draw) -> Fields:
        acts = st.sampled_from(["xielu", "silu", "relu2"])
        return some(draw, llama_like(draw), attention_bias=ON, hidden_act=acts)


class NanoChat:
    TINY = {
        "model_type": "nanochat", "vocab_size": 467, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 39, "attention_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "not bounded": {**TINY, "final_logit_softcapping": None, "attention_bias": False}}

    def drawn(draw: Draw) -> Fields:
        bound = st.none() | st.just(30.0)
        return some(draw, llama_like(draw), attention_bias=ON, head_dim=EVEN, final_logit_softcapping=bound)


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

    def drawn(draw: Draw) -> Fields:
        fields = {**of_whole_heads(draw, EVEN), "intermediate_size": draw(WIDTH)}
        return fields | ({"max_position_embeddings": 40} if draw(ON) else {"model_max_length": 40})


class InternLM2:
    TINY = {
        "model_type": "internlm2", "vocab_size": 197, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 67,
        "max_position_embeddings": 41, "bias": True,
    }  # fmt: skip
    RUN_BY = "Llama"

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw), bias=ON)


class InternLM3:
    TINY = {
        "model_type": "internlm3", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 45, "qkv_bias": True, "bias": True,
    }  # fmt: skip
    RUN_BY = "Llama"

    def drawn(draw: Draw) -> Fields:
        fields = some(draw, llama_like(draw), head_dim=st.none() | EVEN)
        return fields | (dict.fromkeys(("qkv_bias", "bias"), draw(ON)) if draw(ON) else {})


class DeciLM:
    TINY = {
        "model_type": "deci", "vocab_size": 463, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads_per_layer": [4, 2, 2, 4], "intermediate_size": 89, "max_position_embeddings": 53,
    }  # fmt: skip
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

    def drawn(draw: Draw) -> Fields:
        """The class counts the past in its first layer."""
        fields = without(llama_like(draw, null_kv=False, head_dim=False), "tie_word_embeddings")
        return some(draw, {**fields, "pad_token_id": 0}, cross_attention_layers=st.lists(st.integers(1, 5)))


class Chameleon:
    TINY = {
        "model_type": "chameleon_text", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 64,
    }  # fmt: skip
    VARIANTS = {"norms behind": {**TINY, "swin_norm": True, "attention_bias": True, "mlp_bias": True}}
    LOGITS = {"": TINY, **VARIANTS}

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw, null_kv=False, head_dim=False), swin_norm=ON, attention_bias=ON, mlp_bias=ON)


class AriaText:
    TINY = {
        "model_type": "aria_text", "vocab_size": 151, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37,
        "max_position_embeddings": 69, "moe_num_experts": 7, "moe_topk": 4, "moe_num_shared_experts": 3,
        "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "moe_topk": 7}}  # the class's softmax is over the chosen ones

    def drawn(draw: Draw) -> Fields:
        fields, count = llama_like(draw), draw(SMALL)
        fields |= {"moe_num_experts": count, "moe_topk": draw(st.integers(1, count))}
        return some(draw, fields, attention_bias=ON, mlp_bias=ON, moe_num_shared_experts=st.integers(1, 3))


class Jais2:
    TINY = {
        "model_type": "jais2", "vocab_size": 373, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 109,
        "eos_token_id": 1,
    }  # fmt: skip
    LOGITS = {"": TINY, "without biases": {**TINY, "attention_bias": False, "mlp_bias": False}}

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw), attention_bias=ON, mlp_bias=ON)


class SmolLM3:
    TINY = {
        "model_type": "smollm3", "vocab_size": 191, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 37,
        "attention_bias": True, "mlp_bias": True, "pad_token_id": 0, "no_rope_layer_interval": 2,
    }  # fmt: skip
    VARIANTS = {"windowed": {**TINY, "use_sliding_window": True, "sliding_window": 5}}
    LOGITS = {
        "": TINY,
        "windowed": VARIANTS["windowed"],
        "listed": {**TINY, "no_rope_layers": [0, 1, 1, 0], "attention_bias": False},
    }

    def drawn(draw: Draw) -> Fields:
        fields = some(
            draw,
            llama_like(draw) | {"pad_token_id": 0},
            attention_bias=ON,
            mlp_bias=ON,
            no_rope_layer_interval=st.integers(1, 5),
        )
        layers = fields["num_hidden_layers"]
        some(draw, fields, no_rope_layers=st.none() | st.lists(st.integers(0, 1), min_size=layers, max_size=layers + 2))
        if not draw(ON):
            return some(draw, fields, sliding_window=st.none() | WINDOW)
        return layer_types(draw, fields | {"use_sliding_window": True, "sliding_window": draw(WINDOW)})
