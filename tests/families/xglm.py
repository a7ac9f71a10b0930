"""XGLM: sines that are computed and not stored, scaled rows of tokens."""

from tests.families._drawing import ON, SMALL, WIDTH, Draw, Fields, of_whole_heads, some
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "xglm", "vocab_size": 457, "d_model": 42, "num_layers": 2, "attention_heads": 6, "ffn_dim": 71,
    "max_position_embeddings": 21, "pad_token_id": 1,
}  # fmt: skip
LOGITS = {"": TINY, "not scaled": {**TINY, "scale_embedding": False, "activation_function": "relu"}}
SILENT = {"layerdrop": 0.1, "init_std": 0.3}
REQUIRED = {"num_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    sizes = of_whole_heads(draw, SMALL.map(lambda part: 4 * part))  # two sines at the least: of one there is no rate
    names = {"hidden_size": "d_model", "num_hidden_layers": "num_layers", "num_attention_heads": "attention_heads"}
    fields = {names.get(name, name): value for name, value in sizes.items()}
    return some(draw, fields | {"ffn_dim": draw(WIDTH)}, scale_embedding=ON)


def sized(of: Distinct) -> Sized:
    names = "vocab_size d_model num_layers attention_heads ffn_dim"
    return of_heads(of, names, max_position_embeddings=of.P, tie_word_embeddings=of.on[0])
