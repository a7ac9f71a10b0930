"""GLM-5: an indexer in some layers, and layers that read the keys that it chose."""

from hypothesis import strategies as st

from tests.families import deepseek_v32 as indexed
from tests.families._drawing import Draw, Fields, some

TINY = {**indexed.TINY, "model_type": "glm_moe_dsa", "vocab_size": 161, "indexer_types": ["full", "shared", "full"]}
LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids
REQUIRED = indexed.REQUIRED
sized = indexed.sized


def drawn(draw: Draw) -> Fields:
    fields = indexed.drawn(draw)
    layers = fields["num_hidden_layers"]
    kinds = st.lists(st.sampled_from(["full", "shared"]), min_size=layers - 1, max_size=layers - 1)
    return some(
        draw,
        fields,
        indexer_types=st.none() | kinds.map(lambda rest: ["full", *rest]),
        index_topk_pattern=st.none() | kinds.map(lambda rest: "F" + "".join(kind[0].upper() for kind in rest)),
        index_topk_freq=st.integers(1, 3),
        index_skip_topk_offset=st.integers(1, 3),
    )
