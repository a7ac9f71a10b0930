from tests.families._configs import ABSENT, HEADS, PLAIN, SIZES, family

# fmt: off
family("gpt2", vocab_size=59, n_embd=42, n_layer=2, n_head=6, n_positions=37, n_inner=67,
    LOGITS={"untied": {"tie_word_embeddings": False}},
    REQUIRED={"vocab_size": 37, "n_embd": 48, "n_layer": 2, "n_head": 4})
family("gpt_bigcode", vocab_size=307, n_embd=42, n_layer=2, n_head=6, n_positions=79, n_inner=67,
    VARIANTS={"of many heads": {"multi_query": False, "tie_word_embeddings": False}}, REQUIRED={"n_layer": 2})
family("gpt_neo", vocab_size=353, hidden_size=42, num_layers=2, num_heads=6, intermediate_size=67,
    max_position_embeddings=101, window_size=5, attention_types=[[["global", "local"], 1]],
    REQUIRED={"num_layers": 2, "attention_types": [[["global", "local"], 1]]})
GPTJ = family("gptj", vocab_size=311, n_embd=60, n_layer=2, n_head=6, n_positions=83, n_inner=67, rotary_dim=4,
    REQUIRED={"n_layer": 2})
family("codegen", GPTJ, vocab_size=313, n_embd=80, n_head=8, n_positions=89, rotary_dim=6, LOGITS=None)
family("openai-gpt", vocab_size=461, n_embd=42, n_layer=2, n_head=6, n_positions=37,
    LOGITS={"untied": {"tie_word_embeddings": False}}, REQUIRED={"n_layer": 2})
family("ctrl", vocab_size=463, n_embd=42, n_layer=2, n_head=6, dff=71, n_positions=37,
    LOGITS={"of odd width": {"n_embd": 45, "n_head": 5, "layer_norm_epsilon": 0.001}}, REQUIRED={"n_layer": 2})
family("jais", vocab_size=449, n_embd=42, n_layer=2, n_head=6, n_positions=37, n_inner=67, mup_embeddings_scale=9.1,
    mup_scale_qk_dot_by_d=True, mup_width_scale=0.2, mup_output_alpha=1.1, position_embedding_type="alibi",
    activation_function="swiglu",
    VARIANTS={"learned positions": {"position_embedding_type": ABSENT, "activation_function": ABSENT}}, LOGITS=None)
family("cs336", vocab_size=83, context_length=41, num_layers=2, d_model=48, num_heads=8, d_ff=89, LOGITS=None)
family("gpt_neox", SIZES, vocab_size=157, hidden_size=60, max_position_embeddings=45, rotary_pct=0.4, BY_HEAD=True,
    COMPARED={"sequential": {"use_parallel_residual": False, "attention_bias": False}}, REQUIRED=HEADS)
family("gpt_neox_japanese", vocab_size=463, hidden_size=60, num_hidden_layers=3, num_attention_heads=6,
    intermediate_multiple_size=3, max_position_embeddings=45, rotary_pct=0.4, BY_HEAD=True)
family("bloom", vocab_size=173, hidden_size=60, n_layer=2, n_head=6, seq_length=35, CONTEXT=2048, BY_HEAD=True,
    LOGITS={"of six heads untied": {"tie_word_embeddings": False}},
    REQUIRED={"vocab_size": 37, "hidden_size": 60, "n_layer": 2, "n_head": 6})
# Without logits of ALiBi: the class scales the distances too, and rounds them to bfloat16.
family("falcon", PLAIN, vocab_size=163, hidden_size=60, num_attention_heads=6, num_kv_heads=2,
    new_decoder_architecture=True, ffn_hidden_size=71, max_position_embeddings=39, BY_HEAD=True,
    COMPARED={"one key head": {"new_decoder_architecture": False, "num_kv_heads": ABSENT}},
    VARIANTS={
        "ALiBi": {"OF": "one key head", "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True},
    },
    LOGITS={
        "one norm": {"num_ln_in_parallel_attn": 1},
        "every head its keys": {"OF": "one key head", "multi_query": False, "bias": True},
        "sequential": {"OF": "one key head", "parallel_attn": False},
    }, REQUIRED=PLAIN, SILENT={"n_head": 6, "n_layer": 2, "n_embed": 60, "n_head_kv": 2, "n_inner": 71})
family("mpt", vocab_size=349, d_model=42, n_layers=2, n_heads=6, max_seq_len=99, CONTEXT=2048,
    LOGITS={"bounded": {"attn_config": {"clip_qkv": 0.7, "softmax_scale": 0.3}}}, REQUIRED={"n_layers": 2})
family("opt", PLAIN, vocab_size=167, hidden_size=60, num_attention_heads=6, ffn_dim=71, max_position_embeddings=59,
    COMPARED={"post-norm": {"word_embed_proj_dim": 22, "do_layer_norm_before": False}},
    LOGITS={"without biases": {"enable_bias": False, "_remove_final_layer_norm": True}}, REQUIRED=PLAIN)
family("openelm", vocab_size=467, model_dim=44, num_transformer_layers=3, head_dim=14, max_context_length=59,
    num_query_heads=[6, 12, 12], num_kv_heads=[2, 3, 3], ffn_multipliers=[0.5, 1.3, 2.0], ffn_dim_divisor=16,
    ffn_with_glu=True, normalize_qk_projections=True, share_input_output_layers=True,
    VARIANTS={"untied": {"ffn_with_glu": False, "normalize_qk_projections": False, "share_input_output_layers": False}},
    LOGITS=None)
family("telechat", vocab_size=457, hidden_size=60, n_layer=2, n_head=6, num_key_value_heads=3, ffn_hidden_size=83,
    max_position_embeddings=43, tie_word_embeddings=False,
    VARIANTS={"tied": {"num_key_value_heads": None, "tie_word_embeddings": True}}, LOGITS=None)
family("biogpt", SIZES, vocab_size=449, hidden_size=42, max_position_embeddings=37, pad_token_id=0,
    LOGITS={"not scaled": {"scale_embedding": False}})
family("xglm", vocab_size=457, d_model=42, num_layers=2, attention_heads=6, ffn_dim=71, max_position_embeddings=21,
    pad_token_id=1, LOGITS={"not scaled": {"scale_embedding": False}},
    REQUIRED={"num_layers": 2}, SILENT={"init_std": 0.3})
