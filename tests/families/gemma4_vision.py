"""Gemma 4's encoder of images: heads of a size of their own, two tables of positions, and means of patches."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "gemma4_vision", "hidden_size": 46, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 71, "patch_size": 4, "pooling_kernel_size": 2,
    "position_embedding_size": 19, "default_output_length": 7,
}  # fmt: skip
REQUIRED: Fields = {"num_hidden_layers": 2}
SILENT = {"use_clipped_linears": True, "global_head_dim": 9, "max_position_embeddings": 77}
CONTEXT = 2520


def drawn(draw: Draw) -> Fields:
    heads = draw(st.integers(1, 3))
    fields = {
        "hidden_size": draw(WIDTH),
        "intermediate_size": draw(WIDTH),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": heads * draw(st.integers(1, 3)),
        "num_key_value_heads": heads,
        "head_dim": 4 * draw(SMALL),
        "default_output_length": draw(st.integers(1, 9)),
    }
    few, rows = st.integers(1, 3), st.integers(9, 40)
    return some(draw, fields, patch_size=SMALL, pooling_kernel_size=few, position_embedding_size=rows)


def sized(of: Distinct) -> Sized:
    side = 1 + of.seed % 3
    together, head = side**2, 4 * (of.H // 2 + 1)
    sizes = {**of.letters("KGLBDF"), "N": of.K * of.G, "H": head, "T": together * of.S, "S": together * of.S}
    sizes |= {"Cc": 3, "Px": of.J**2, "Mp": together, "P": of.P, "Xy": 2}
    config = {
        "hidden_size": of.D, "intermediate_size": of.F, "num_hidden_layers": of.L, "num_attention_heads": of.K * of.G,
        "num_key_value_heads": of.K, "head_dim": head, "patch_size": of.J, "pooling_kernel_size": side,
        "position_embedding_size": of.P,
    }  # fmt: skip
    return config, sizes
