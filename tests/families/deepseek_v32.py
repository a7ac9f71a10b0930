"""DeepSeek-V3.2: an indexer chooses keys."""

from hypothesis import strategies as st

from tests.families import _sizes, deepseek_v3
from tests.families._drawing import SMALL, Draw, Fields, in_forms, latent, some
from tests.families._sizes import Distinct, Sized

TINY = {
    **deepseek_v3.TINY, "model_type": "deepseek_v32", "vocab_size": 157, "index_topk": 5, "index_n_heads": 19,
    "index_head_dim": 16, "n_routed_experts": 21, "qk_rope_head_dim": 4,
}  # fmt: skip
VARIANTS = in_forms(TINY, "absorbed", "unpacked")
# Dense layers only: the class weighs experts by sigmoids.
LOGITS = in_forms({**TINY, "first_k_dense_replace": 3}, "expanded", "absorbed", "unpacked")
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields = latent(draw, draw(st.integers(1, 3)))
    fields |= {"q_lora_rank": draw(SMALL), "n_shared_experts": max(1, fields["n_shared_experts"])}
    fields |= {"index_topk": draw(SMALL), "index_n_heads": draw(SMALL)}
    fields["index_head_dim"] = fields["qk_rope_head_dim"] + draw(SMALL)
    layers = fields["num_hidden_layers"]
    listed = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
    return some(draw, fields, mlp_layer_types=st.none() | listed)


def sized(of: Distinct) -> Sized:
    config, sizes = _sizes.sized_latent(of, ranked=True)
    own = {"index_n_heads": of.P + 70, "index_head_dim": of.K + 150, "index_topk": of.G}
    sizes |= {"Nx": of.P + 70, "Hx": of.K + 150, "Sx": of.G}
    return {**config, **own}, sizes
