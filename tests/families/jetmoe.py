"""JetMoE: experts that make queries, and others in the network."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, VOCAB, WIDTH, Draw, Fields, experts, some
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "jetmoe", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 2, "num_key_value_heads": 4,
    "kv_channels": 10, "intermediate_size": 37, "max_position_embeddings": 63, "num_local_experts": 7,
    "num_experts_per_tok": 3,
}  # fmt: skip
LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
SILENT = {"aux_loss_coef": 0.5}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = {"hidden_size": draw(WIDTH), "num_hidden_layers": draw(st.integers(1, 3)), "vocab_size": draw(VOCAB)}
    fields |= {"num_key_value_heads": draw(SMALL), "kv_channels": draw(EVEN), "intermediate_size": draw(WIDTH)}
    return some(draw, fields | experts(draw, "num_local_experts"), tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    (A, E), Fe = sorted(of.more[:2]), of.more[2]
    config = {
        "vocab_size": of.V + 300, "hidden_size": of.D, "num_hidden_layers": of.L, "num_key_value_heads": of.K,
        "head_dim": of.H, "intermediate_size": Fe, "tie_word_embeddings": of.on[0], "num_local_experts": E,
        "num_experts_per_tok": A,
    }  # fmt: skip
    return config, {**of.letters("KHDLBTS"), "V": of.V + 300, "N": of.K * A, "A": A, "E": E, "Fe": Fe}
