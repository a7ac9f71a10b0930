"""CLIP's encoder of texts: a causal mask over whole texts."""

from hypothesis import strategies as st

from tests.families._drawing import WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import blocks, text_sizes

TINY = {
    "model_type": "clip_text_model", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2,
    "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 37, "projection_dim": 29,
    "eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1,
}  # fmt: skip
VARIANTS = {"projected": {**TINY, "architectures": ["CLIPTextModelWithProjection"]}}
LOGITS = {"": TINY, **VARIANTS}
INSTEAD = {"flops.lm_head": "flops.mlp"}
SILENT = {"initializer_factor": 0.3}


def drawn(draw: Draw) -> Fields:
    fields = {**blocks(draw), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return some(draw, fields, max_position_embeddings=st.integers(25, 40), projection_dim=WIDTH)


def sized(of: Distinct) -> Sized:
    named = {"architectures": ["CLIPTextModelWithProjection"], "projection_dim": of.J}
    config, sizes = text_sizes(of, **named)
    return config, {**sizes, "Dv": of.J}
