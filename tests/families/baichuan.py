"""Baichuan: Llama whose heads share the hidden size, or one that lowers scores by distance."""

from tests.families._drawing import EVEN, ON, WIDTH, Draw, Fields, of_whole_heads
from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "baichuan", "vocab_size": 431, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 79, "max_position_embeddings": 43,
}  # fmt: skip
ALIBI = {name: value for name, value in TINY.items() if name != "max_position_embeddings"}
VARIANTS = {"ALiBi": {**ALIBI, "model_max_length": 43}}
LOGITS = {"": TINY}  # the class of Llama has no ALiBi
SILENT = {"z_loss_weight": 0}
RUN_BY = "Llama"
REQUIRED = {
    "vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 64, "intermediate_size": 40,
}  # fmt: skip


def drawn(draw: Draw) -> Fields:
    fields = {**of_whole_heads(draw, EVEN), "intermediate_size": draw(WIDTH)}
    return fields | ({"max_position_embeddings": 40} if draw(ON) else {"model_max_length": 40})


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    return of_heads(of, names, max_position_embeddings=40, tie_word_embeddings=of.on[0])
