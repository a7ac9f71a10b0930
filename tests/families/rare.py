"""Test configs of families that have parts of their own."""

from tests.families._configs import GROUPED, HEADS, LAYERS, SIZES, family, of_every_expert, without
from tests.families.bert import BERT, ROBERTA
from tests.families.gemma import GEMMA3

HALF = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.48}
DECODER = {**without(GEMMA3.TINY, "model_type"), "num_hidden_layers": 3}
READS = {**DECODER, "num_hidden_layers": 4, "intermediate_size": 67, "num_key_value_heads": 3, "sliding_window": 8}

# fmt: off
family("zaya", vocab_size=127, hidden_size=46, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
    head_dim=26, moe_intermediate_size=31, num_experts=15, router_hidden_size=22, cca_time0=5, cca_time1=11,
    max_position_embeddings=63, sliding_window=7, layer_types=["hybrid", "hybrid_sliding", "hybrid"],
    rope_parameters=dict.fromkeys(("hybrid", "hybrid_sliding"), HALF),
    LOGITS={
        "": {"num_experts": 1},
        "biased": {"attention_bias": True, "lm_head_bias": True, "tie_word_embeddings": False},
    }, REQUIRED={})
family("mobilebert", SIZES, hidden_size=47, vocab_size=181, max_position_embeddings=37, type_vocab_size=3,
    embedding_size=19, intra_bottleneck_size=30, num_feedforward_networks=3, classifier_activation=False,
    LOGITS={"of one network": {"num_feedforward_networks": 1, "hidden_act": "gelu"}})
family("xlnet", vocab_size=181, d_model=60, n_layer=2, n_head=12, d_inner=71, CONTEXT=512,
    LOGITS={"without a projection": {"summary_use_proj": False}},
    REQUIRED={"vocab_size": 37, "d_model": 128, "n_layer": 2, "n_head": 4})
family("rwkv", LAYERS, vocab_size=181, hidden_size=42, intermediate_size=71, context_length=103,
    LOGITS={"tied": {"intermediate_size": None, "tie_word_embeddings": True}}, REQUIRED=LAYERS,
    INSTEAD={
        "attn_scores_values": "time_mix.k_proj", "attn.scores": "time_mix.o_proj",
        "share.attn": "share.time_mix.r_proj", ".mlp": ".channel_mix",
    })
# The class stores √hidden_size in bf16, so it is an integer here.
family("recurrent_gemma", GROUPED, vocab_size=211, hidden_size=36, num_hidden_layers=3, head_dim=20,
    intermediate_size=74, lru_width=102, conv1d_width=8, attention_window_size=5,
    block_types=["recurrent", "attention"], CONTEXT=8192,
    LOGITS={
        "as published": {
            "block_types": ["recurrent", "recurrent", "attention"], "attention_bias": True, "conv1d_width": 2,
        },
    },
    REQUIRED={"num_hidden_layers": 3, "num_attention_heads": 8, "hidden_size": 128})
# Of 8 layers, two call the block.
family("zamba", SIZES, vocab_size=211, num_hidden_layers=5, num_key_value_heads=2, max_position_embeddings=103,
    n_mamba_heads=4, layers_block_type=["mamba", "hybrid", "hybrid", "mamba", "hybrid"], mamba_d_state=7,
    mamba_d_conv=5, mamba_expand=3, mamba_dt_rank=11, mamba_proj_bias=True,
    LOGITS={"by period": {"layers_block_type": None, "attn_layer_period": 2, "attn_layer_offset": 1}},
    REQUIRED={"num_hidden_layers": 8},
    SILENT={"attention_hidden_size": 96})
family("longformer", ROBERTA, vocab_size=191, attention_window=14,
    LOGITS={
        "windows of two sizes": {"num_hidden_layers": 3, "attention_window": [4, 12, 4]},
        "one window": {"attention_window": 18},
    })
family("led", vocab_size=193, d_model=60, encoder_layers=2, decoder_layers=3, encoder_attention_heads=12,
    decoder_attention_heads=10, encoder_ffn_dim=71, decoder_ffn_dim=67, max_encoder_position_embeddings=41,
    max_decoder_position_embeddings=37, attention_window=14, CONTEXT=1024,
    LOGITS={
        "windows of two sizes": {"encoder_layers": 3, "attention_window": [4, 12, 4]},
        "one window": {"attention_window": 18},
    }, REQUIRED={"d_model": 48, "encoder_layers": 2, "decoder_layers": 3})
family("jetmoe", LAYERS, vocab_size=127, hidden_size=48, num_key_value_heads=4, kv_channels=10, intermediate_size=37,
    max_position_embeddings=63, num_local_experts=7, num_experts_per_tok=3,
    LOGITS=of_every_expert(num_experts_per_tok=7))
family("diffllama", GROUPED, num_hidden_layers=3, num_attention_heads=12, num_key_value_heads=4, vocab_size=127,
    max_position_embeddings=63, attention_bias=True,
    LOGITS={"ungrouped": {"num_key_value_heads": 12, "attention_bias": False}})
family("nvembed", GROUPED, hidden_size=50, vocab_size=127, max_position_embeddings=64, num_latents_value=13,
    num_cross_heads=3, cross_dim_head=11, latent_dim=50, hidden_dim=50, LOGITS=None)
family("t5gemma2", vocab_size=127, encoder={"text_config": READS}, decoder=DECODER, pad_token_id=0, CONTEXT=131072,
    VARIANTS={"untied": {"tie_word_embeddings": False}},
    LOGITS={"bounded, untied": {"OF": "untied", "decoder": {**DECODER, "final_logit_softcapping": 3.0}}},
    REQUIRED={}, SILENT={"initializer_range": 0.3})
family("roc_bert", BERT.TINY, vocab_size=569, shape_vocab_size=53, shape_embed_dim=22, pronunciation_vocab_size=31,
    pronunciation_embed_dim=17)
family("layoutlm", BERT.TINY, vocab_size=557, max_2d_position_embeddings=43)
family("ernie", BERT.TINY, vocab_size=523, use_task_id=True, task_type_vocab_size=5)
family("roformer", SIZES, vocab_size=151, embedding_size=31, hidden_size=84, intermediate_size=83,
    max_position_embeddings=49, type_vocab_size=3, VARIANTS={"of wide tables": {"embedding_size": None}},
    LOGITS={"of wide tables": {"embedding_size": None}}, REQUIRED=HEADS)
family("big_bird", BERT, vocab_size=563, attention_type="original_full",
    LOGITS={"scaled": {"use_bias": False, "rescale_embeddings": True}},
    REQUIRED={"num_hidden_layers": 2, "attention_type": "original_full"})
