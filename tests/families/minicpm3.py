"""MiniCPM3: latent attention, dense blocks, constants that multiply embeddings, results and logits."""

from hypothesis import strategies as st

from tests.families import _sizes, deepseek_v3
from tests.families._drawing import SMALL, WIDTH, Draw, Fields, latent, in_forms, latent_forms, some, without
from tests.families._sizes import Distinct, Sized

EXPERTS = (
    "moe_intermediate_size", "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "first_k_dense_replace",
    "n_group", "topk_group",
)  # fmt: skip
TINY = {
    **without(deepseek_v3.TINY, *EXPERTS), "model_type": "minicpm3", "vocab_size": 421, "pad_token_id": 0,
    "scale_emb": 3.0, "scale_depth": 1.7, "dim_model_base": 13, "tie_word_embeddings": False,
}  # fmt: skip
VARIANTS = in_forms(TINY, "absorbed", "unpacked")
LOGITS = latent_forms(without(TINY, "first_k_dense_replace"), {})
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    fields = without(latent(draw, 1), *EXPERTS) | {"pad_token_id": 0}
    constants = {"scale_depth": st.none() | SMALL.map(float), "dim_model_base": st.none() | WIDTH}
    return some(draw, fields, **constants, v_head_dim=st.none() | SMALL)


def sized(of: Distinct) -> Sized:
    config, sizes = _sizes.sized_latent(of, ranked=True)
    experts = {"A", "E", "Fe", "Fs"}
    dense = {letter: size for letter, size in sizes.items() if letter not in experts}
    return {**without(config, *EXPERTS), "intermediate_size": of.F}, {**dense, "F": of.F}
