"""Test configs of the deberta lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import LAYERS, ON, WIDTH, Draw, Fields, of_whole_heads, some, without


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

    def drawn(draw: Draw) -> Fields:
        fields = {**without(of_whole_heads(draw), "tie_word_embeddings"), "intermediate_size": draw(WIDTH)}
        kinds = st.sampled_from(["p2c|c2p", "c2p", "p2c", ["c2p", "p2c"]])
        fields |= {"relative_attention": draw(ON), "pos_att_type": draw(kinds)}
        some(draw, fields, max_relative_positions=st.sampled_from([-1, 0, 41, 60]), legacy=ON)
        sizes = {"type_vocab_size": st.integers(0, 4), "max_position_embeddings": st.integers(25, 40)}
        fields |= {"max_position_embeddings": 40} if "max_relative_positions" in fields else {}
        return some(draw, fields, position_biased_input=ON, **sizes)


class DebertaV2:
    TINY = {
        "model_type": "deberta-v2", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 37, "relative_attention": True,
        "position_buckets": 13, "pos_att_type": "p2c|c2p", "share_att_key": True, "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
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

    def drawn(draw: Draw) -> Fields:
        fields = {**without(of_whole_heads(draw), "tie_word_embeddings"), "intermediate_size": draw(WIDTH)}
        kinds = st.sampled_from(["p2c|c2p", "c2p", "p2c", ["c2p", "p2c"]])
        fields |= {"relative_attention": draw(ON), "pos_att_type": draw(kinds)}
        some(draw, fields, position_buckets=st.integers(2, 9), max_relative_positions=st.integers(12, 40))
        some(draw, fields, share_att_key=ON, legacy=ON)
        if fields["relative_attention"]:
            some(draw, fields, norm_rel_ebd=st.sampled_from(["none", "layer_norm"]))
        sizes = {"type_vocab_size": st.integers(0, 4), "max_position_embeddings": st.integers(25, 40)}
        sizes |= {"conv_kernel_size": st.sampled_from([0, 1, 3, 7]), "conv_act": st.sampled_from(["gelu", "tanh"])}
        return some(draw, fields, position_biased_input=ON, **sizes)
