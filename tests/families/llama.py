from tests.families._configs import ABSENT, GROUPED, SIZES, family, of_every_expert

STRETCHED = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
"""Llama 3.1's scaled RoPE, at a length that tiny contexts reach."""

# fmt: off
LLAMA = family("llama", GROUPED, hidden_size=24, num_hidden_layers=3, vocab_size=61, max_position_embeddings=53,
    attention_bias=True, mlp_bias=True,
    LOGITS={
        "plain": {"attention_bias": False, "mlp_bias": False, "rope_theta": 500.0},
        "stretched": {"rope_theta": 1000.0, "rope_scaling": STRETCHED, "rms_norm_eps": 1e-3},
        "slowed": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "as transformers 5 spells it": {"rope_parameters": {**STRETCHED, "rope_theta": 700.0}},
    }, REQUIRED={"vocab_size": 37, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4})
family("arcee", GROUPED, vocab_size=367, max_position_embeddings=107, attention_bias=True, mlp_bias=True,
    LOGITS={"without biases": {"attention_bias": False, "mlp_bias": False}})
family("cwm", GROUPED, num_hidden_layers=3, vocab_size=239, max_position_embeddings=53, sliding_window=5, mlp_bias=True)
family("helium", GROUPED, hidden_size=60, vocab_size=227, max_position_embeddings=49, attention_bias=True,
    mlp_bias=True)
family("iquestcoder", GROUPED, vocab_size=223, max_position_embeddings=47, attention_bias=True, mlp_bias=True,
    RUN_BY="Llama")
family("seed_oss", GROUPED, vocab_size=251, max_position_embeddings=57, attention_out_bias=True, mlp_bias=True,
    LOGITS={"of q, k and v": {"attention_out_bias": False, "mlp_bias": False}})
family("bitnet", SIZES, vocab_size=211, hidden_size=60, num_key_value_heads=3, max_position_embeddings=47,
    attention_bias=True, LOGITS={"without biases": {"attention_bias": False, "tie_word_embeddings": True}})
family("apertus", GROUPED, intermediate_size=73, vocab_size=239, max_position_embeddings=53, attention_bias=True,
    COMPARED={"plain": {"attention_bias": False, "hidden_act": "silu"}})
family("nanochat", GROUPED, vocab_size=467, max_position_embeddings=39, attention_bias=True,
    LOGITS={"not bounded": {"attention_bias": False, "final_logit_softcapping": None}})
# Llama's class has no ALiBi.
family("baichuan", SIZES, vocab_size=431, hidden_size=60, intermediate_size=79, max_position_embeddings=43,
    RUN_BY="Llama", VARIANTS={"ALiBi": {"model_max_length": 43, "max_position_embeddings": ABSENT}},
    REQUIRED={
        "vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 64,
        "intermediate_size": 40,
    })
family("internlm2", GROUPED, intermediate_size=67, vocab_size=197, max_position_embeddings=41, bias=True,
    RUN_BY="Llama")
family("internlm3", GROUPED, vocab_size=211, max_position_embeddings=45, qkv_bias=True, bias=True, RUN_BY="Llama")
family("deci", SIZES, vocab_size=463, num_hidden_layers=4, num_attention_heads=8,
    num_key_value_heads_per_layer=[4, 2, 2, 4], intermediate_size=89, max_position_embeddings=53,
    VARIANTS={"biases": {"attention_bias": True, "tie_word_embeddings": True}}, LOGITS=None,
    SILENT={"pretraining_tp": 1})
family("mllama_text_model", SIZES, vocab_size=61, hidden_size=60, num_hidden_layers=4, num_key_value_heads=2,
    max_position_embeddings=53, cross_attention_layers=[1, 3], pad_token_id=0,
    VARIANTS={"without an image": {"cross_attention_layers": []}},
    REQUIRED={
        "vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 5, "num_attention_heads": 64, "pad_token_id": 0,
    }, SILENT={"cross_attention_layers": [1, 3, 8]})
family("chameleon_text", SIZES, vocab_size=127, num_hidden_layers=3, num_key_value_heads=2, max_position_embeddings=64,
    COMPARED={"norms after": {"swin_norm": True, "attention_bias": True, "mlp_bias": True}})
family("aria_text", GROUPED, intermediate_size=37, vocab_size=151, max_position_embeddings=69, moe_num_experts=7,
    moe_topk=4, moe_num_shared_experts=3, attention_bias=True, mlp_bias=True, LOGITS=of_every_expert(moe_topk=7))
family("jais2", GROUPED, vocab_size=373, max_position_embeddings=109, eos_token_id=1,
    LOGITS={"without biases": {"attention_bias": False, "mlp_bias": False}})
family("smollm3", GROUPED, num_hidden_layers=3, vocab_size=191, max_position_embeddings=37, attention_bias=True,
    mlp_bias=True, pad_token_id=0, no_rope_layer_interval=2,
    COMPARED={"windowed": {"use_sliding_window": True, "sliding_window": 5}},
    LOGITS={"listed": {"attention_bias": False, "no_rope_layers": [0, 1, 1, 0]}})
