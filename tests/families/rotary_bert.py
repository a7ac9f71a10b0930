from tests.families._configs import HEADS, SIZES, family
from tests.families.llama import LLAMA

# fmt: off
family("gte", SIZES, vocab_size=181, hidden_size=60, max_position_embeddings=37, type_vocab_size=3, pad_token_id=0,
    VARIANTS={"without segments": {"type_vocab_size": 0}},
    LOGITS={"without segments": {"type_vocab_size": 0}}, REQUIRED=HEADS,
    SILENT={"hidden_dropout_prob": 0.2, "classifier_dropout": 0.5})
family("jina_bert", SIZES, hidden_size=42, vocab_size=181, max_position_embeddings=37, type_vocab_size=3,
    feed_forward_type="geglu", position_embedding_type="alibi",
    VARIANTS={"normed": {"position_embedding_type": "absolute", "query_key_norm": True}}, LOGITS=None,
    SILENT={"attn_implementation": "torch"})
JINA_EMBEDDINGS_V3 = family("jina_embeddings_v3", SIZES, vocab_size=181, hidden_size=60, max_position_embeddings=37,
    type_vocab_size=3, LOGITS={"of other heads": {"head_dim": 14}},
    REQUIRED=HEADS)
family("nomic_bert", JINA_EMBEDDINGS_V3,
    VARIANTS={
        "with experts": {
            "architectures": ["NomicBertModel"], "activation_function": "gelu", "qkv_proj_bias": True,
            "mlp_fc1_bias": True, "mlp_fc2_bias": True, "num_experts": 5, "moe_top_k": 2, "moe_every_n_layers": 2,
        },
    }, LOGITS={"of other heads": {"head_dim": 14, "hidden_act": "gelu", "layer_norm_eps": 0.001}},
    SILENT={"qkv_proj_bias": False, "rotary_emb_fraction": 1.0, "prenorm": False})
BIASES = {
    "norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False,
    "tie_word_embeddings": False,
}
MODERNBERT = family("modernbert", SIZES, vocab_size=139, hidden_size=96, num_hidden_layers=4,
    max_position_embeddings=59, local_attention=6, pad_token_id=0,
    VARIANTS={"with biases": BIASES},
    LOGITS={"with biases": {**BIASES, "local_attention": 9, "global_attn_every_n_layers": 2}},
    REQUIRED={
        "vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0,
    })
family("modernbert-decoder", MODERNBERT, local_attention=11,
    VARIANTS={"with biases": BIASES},
    LOGITS={"with biases": {**BIASES, "local_attention": 8, "global_attn_every_n_layers": 2}},
    SILENT={"classifier_pooling": "mean"})
family("eurobert", LLAMA, pad_token_id=0,
    LOGITS={"tied": {"mlp_bias": False, "tie_word_embeddings": True}},
    REQUIRED={"vocab_size": 37, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0})
family("esm", SIZES, vocab_size=521, hidden_size=60, num_hidden_layers=3, max_position_embeddings=41, pad_token_id=1,
    mask_token_id=520, position_embedding_type="rotary", token_dropout=True, emb_layer_norm_before=False, CONTEXT=1024,
    COMPARED={
        "with a table of positions": {
            "position_embedding_type": "absolute", "token_dropout": False, "emb_layer_norm_before": True,
        },
    }, REQUIRED={"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32, "num_hidden_layers": 2},
    SILENT={"hidden_act": "relu"})
family("esmc", SIZES, vocab_size=61, hidden_size=60, num_hidden_layers=3, max_position_embeddings=53,
    attention_bias=True, mlp_bias=True,
    LOGITS={"plain": {"attention_bias": False, "mlp_bias": False}})
