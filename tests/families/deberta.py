from tests.families._configs import HEADS, SIZES, family

# fmt: off
DEBERTA = family("deberta", SIZES, vocab_size=181, hidden_size=60, num_attention_heads=12, max_position_embeddings=37,
    relative_attention=True, pos_att_type="p2c|c2p", position_biased_input=False, BY_HEAD=True,
    COMPARED={
        "one way": {"pos_att_type": ["c2p"], "position_biased_input": True, "type_vocab_size": 3},
        "absolute": {"relative_attention": False, "legacy": False},
    },
    LOGITS={
        "of a longer table": {"max_relative_positions": 53, "type_vocab_size": 3},
        "the other way": {"pos_att_type": ["p2c"]},
    }, REQUIRED=HEADS, SILENT={"pooler_dropout": 0.3, "pooler_hidden_act": "relu"})
family("deberta-v2", DEBERTA.TINY, hidden_size=42, num_attention_heads=6, position_buckets=13, share_att_key=True,
    norm_rel_ebd="layer_norm",
    COMPARED={
        "one way": {
            "position_buckets": -1, "pos_att_type": ["c2p"], "share_att_key": False, "max_relative_positions": 11,
            "type_vocab_size": 3,
        },
        "absolute": {"relative_attention": False, "norm_rel_ebd": "none", "position_biased_input": True},
    },
    VARIANTS={
        "with weights of their own": {
            "position_buckets": -1, "share_att_key": False, "norm_rel_ebd": "none", "position_biased_input": True,
            "max_relative_positions": 11, "type_vocab_size": 3, "legacy": False,
        },
        "with a convolution": {"conv_kernel_size": 3},
    },
    LOGITS={
        "of few buckets": {"position_buckets": 6, "max_relative_positions": 20, "type_vocab_size": 3},
        "with weights of their own": {
            "OF": "one way", "pos_att_type": "p2c|c2p", "norm_rel_ebd": "none", "position_biased_input": True,
        },
        "the other way": {"OF": "one way", "pos_att_type": ["p2c"]},
        "with a convolution": {"conv_kernel_size": 5, "conv_act": "gelu"},
    }, REQUIRED=HEADS, SILENT={"pooler_dropout": 0.3, "pooler_hidden_act": "relu", "conv_act": "gelu"})
