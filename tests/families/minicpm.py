from tests.families._configs import SIZES, family, in_forms, latent_forms

# fmt: off
family("minicpm", SIZES, vocab_size=439, num_key_value_heads=2, max_position_embeddings=39, scale_emb=3.0,
    scale_depth=1.7, dim_model_base=13.0, attention_bias=True, tie_word_embeddings=False, RUN_BY="Granite",
    SILENT={"num_experts": 0})
family("minicpm3", SIZES, vocab_size=421, num_hidden_layers=3, num_key_value_heads=6, max_position_embeddings=67,
    q_lora_rank=22, kv_lora_rank=14, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=10, latent_attention="expanded",
    pad_token_id=0, scale_emb=3.0, scale_depth=1.7, dim_model_base=13, tie_word_embeddings=False,
    VARIANTS=in_forms("absorbed", "unpacked"), LOGITS=latent_forms())
