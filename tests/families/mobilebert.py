"""MobileBERT: BERT's encoder in bottlenecks."""

from hypothesis import strategies as st

from tests.families import bert
from tests.families._drawing import ON, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "mobilebert", "vocab_size": 181, "hidden_size": 47, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3, "embedding_size": 19,
    "intra_bottleneck_size": 30, "num_feedforward_networks": 3, "classifier_activation": False,
}  # fmt: skip
LOGITS = {"": TINY, "of one network": {**TINY, "num_feedforward_networks": 1, "hidden_act": "gelu"}}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = bert.drawn(draw)
    heads, table = fields["num_attention_heads"], draw(st.integers(2, 30))
    fields |= {"intra_bottleneck_size": heads * draw(st.integers(1, 6)), "embedding_size": table}
    fields["hidden_size"] = table + draw(st.integers(1, 20))
    return some(draw, fields, num_feedforward_networks=st.integers(1, 4), classifier_activation=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    rest, networks = of.more[0], 1 + of.seed % 3
    narrow, table = config["hidden_size"], of.more[1]
    config |= {"intra_bottleneck_size": narrow, "embedding_size": table, "hidden_size": table + rest}
    config |= {"num_feedforward_networks": networks}
    return config, {
        **sizes,
        "D": table + rest,
        "Dt": table + rest,
        "De": table,
        "Df": rest,
        "Db": narrow,
        "Da": 3 * table,
    }
