"""Test configs of the deberta lineage: a small one of each family, and variants."""

from tests.families._configs import LAYERS, SIZES


class Deberta:
    TINY = {
        "model_type": "deberta", "vocab_size": 181, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 12, "intermediate_size": 71, "max_position_embeddings": 37, "relative_attention": True,
        "pos_att_type": "p2c|c2p", "position_biased_input": False,
    }  # fmt: skip
    VARIANTS = {
        "one way": {**TINY, "pos_att_type": ["c2p"], "type_vocab_size": 3, "position_biased_input": True},
        "absolute": {**TINY, "relative_attention": False, "legacy": False},
    }
    LOGITS = {
        "": TINY,
        "of a longer table": {**TINY, "max_relative_positions": 53, "type_vocab_size": 3},
        **VARIANTS,
        "the other way": {**TINY, "pos_att_type": ["p2c"]},
    }
    SILENT = {"pooler_dropout": 0.3, "pooler_hidden_act": "relu"}
    BY_HEAD = True
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class DebertaV2:
    TINY = {
        **SIZES, "model_type": "deberta-v2", "vocab_size": 181, "hidden_size": 42, "max_position_embeddings": 37,
        "relative_attention": True, "position_buckets": 13, "pos_att_type": "p2c|c2p", "share_att_key": True,
        "norm_rel_ebd": "layer_norm", "position_biased_input": False,
    }  # fmt: skip
    OWN = {**TINY, "share_att_key": False, "position_buckets": -1, "max_relative_positions": 11, "type_vocab_size": 3}
    VARIANTS = {
        "with weights of their own": {**OWN, "norm_rel_ebd": "none", "position_biased_input": True, "legacy": False},
        "one way": {**OWN, "pos_att_type": ["c2p"]},
        "absolute": {**TINY, "relative_attention": False, "norm_rel_ebd": "none", "position_biased_input": True},
        "with a convolution": {**TINY, "conv_kernel_size": 3},
    }
    LOGITS = {
        "": TINY,
        "of few buckets": {**OWN, "share_att_key": True, "position_buckets": 6, "max_relative_positions": 20},
        "with weights of their own": {**OWN, "norm_rel_ebd": "none", "position_biased_input": True},
        "one way": VARIANTS["one way"],
        "the other way": {**OWN, "pos_att_type": ["p2c"]},
        "absolute": VARIANTS["absolute"],
        "with a convolution": {**TINY, "conv_kernel_size": 5, "conv_act": "gelu"},
    }
    SILENT = {"pooler_dropout": 0.3, "pooler_hidden_act": "relu", "conv_act": "gelu"}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}
