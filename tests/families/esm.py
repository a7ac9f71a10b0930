"""ESM: norms in front, rotary positions or a table, weights for contacts that no pass runs."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, WIDTH, Draw, Fields, of_whole_heads, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "esm", "vocab_size": 521, "hidden_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6,
    "intermediate_size": 71, "max_position_embeddings": 41, "pad_token_id": 1, "mask_token_id": 520,
    "position_embedding_type": "rotary", "token_dropout": True, "emb_layer_norm_before": False,
}  # fmt: skip
TABLE = {**TINY, "position_embedding_type": "absolute", "emb_layer_norm_before": True, "token_dropout": False}
VARIANTS = {"with a table of positions": TABLE}
LOGITS = {"": TINY, **VARIANTS}
SILENT = {"vocab_list": ["A", "C"], "hidden_act": "relu"}
REQUIRED = {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32, "num_hidden_layers": 2}
CONTEXT = 1024


def drawn(draw: Draw) -> Fields:
    fields = of_whole_heads(draw, EVEN)
    fields |= {"intermediate_size": draw(WIDTH), "pad_token_id": draw(st.integers(1, 3)), "mask_token_id": 4}
    some(draw, fields, position_embedding_type=st.sampled_from(["rotary", "absolute"]), token_dropout=ON)
    return some(draw, fields, emb_layer_norm_before=st.none() | ON, max_position_embeddings=st.integers(30, 40))


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    kind = ("rotary", "absolute")[of.seed % 2]
    own = {"pad_token_id": 1, "max_position_embeddings": of.P + 2, "position_embedding_type": kind}
    config, sizes = of_heads(of, names, **own)
    sizes |= {"Dt": sizes["D"], "T": of.S, "Am": of.L * of.K, "Yc": 1, **({"P": of.P + 2} if of.seed % 2 else {})}
    return config, sizes
