"""ALBERT: an encoder whose blocks share one block's weights, with tables narrower than the model."""

from tests.families import electra
from tests.families._drawing import LAYERS, Draw, Fields

TINY = {
    "model_type": "albert", "vocab_size": 149, "embedding_size": 29, "hidden_size": 114, "num_hidden_layers": 3,
    "num_attention_heads": 6, "intermediate_size": 89, "max_position_embeddings": 53, "type_vocab_size": 4,
}  # fmt: skip
LOGITS = {"": TINY, "of wide tables": {**TINY, "embedding_size": 114, "hidden_act": "relu"}}
SILENT = {"gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0, "down_scale_factor": 1}
REQUIRED = {**LAYERS, "num_attention_heads": 4}
sized = electra.sized


def drawn(draw: Draw) -> Fields:
    return electra.drawn(draw)
