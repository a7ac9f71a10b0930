"""Mistral Large 4's language model: layers with an indexer or without, rotated or not, with latents of their own or
another's."""

from hypothesis import strategies as st

from tests.families import glm_moe_dsa
from tests.families._drawing import Draw, Fields, in_forms, some, without
from tests.families._sizes import Distinct, Sized

UNREAD = ("q_lora_rank", "index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
TINY = {
    **without(glm_moe_dsa.TINY, *UNREAD), "model_type": "mistral_large4_text", "vocab_size": 163,
    "num_hidden_layers": 5, "indexer_types": ["full", "shared", "full", "shared", "full"], "n_shared_experts": 2,
    "no_rope_layers": [1, 0, 1, 0, 1], "kv_source_layers": [0, 1, 0, 1, 4], "first_k_dense_replace": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip
VARIANTS = in_forms(TINY, "absorbed", "unpacked")
DENSE = {**TINY, "first_k_dense_replace": 5}
LOGITS = in_forms(DENSE, "expanded", "absorbed", "unpacked")
REQUIRED = {"vocab_size": 37, "num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    """Sources as the class accepts them: of layers rotated alike, the last that another layer reads."""
    fields = without(glm_moe_dsa.drawn(draw), *UNREAD)
    fields |= {"n_shared_experts": max(1, fields["n_shared_experts"])}
    layers = fields["num_hidden_layers"]
    turned = draw(st.lists(st.integers(0, 1), min_size=layers, max_size=layers))
    sources = [*range(layers)]
    for number in range(1, layers):
        alike = [other for other in sources[:number] if turned[other] == turned[number]]
        if alike and draw(st.booleans()):
            sources[number] = max(alike)
    return some(draw, fields | {"no_rope_layers": turned}, kv_source_layers=st.none() | st.just(sources))


def sized(of: Distinct) -> Sized:
    config, sizes = glm_moe_dsa.sized(of)
    return {**without(config, *UNREAD), "no_rope_layers": [1] * of.L}, without(sizes, "Rq")
