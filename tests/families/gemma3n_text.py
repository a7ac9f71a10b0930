"""Gemma 3n's language model: four streams, a low-rank product beside attention, borrowed keys, rows of every layer."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, VOCAB, WIDTH, WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "gemma3n_text", "vocab_size": 127, "hidden_size": 50, "num_hidden_layers": 6,
    "num_attention_heads": 10, "num_key_value_heads": 2, "head_dim": 14, "intermediate_size": 71,
    "max_position_embeddings": 63, "sliding_window": 7, "num_kv_shared_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                    "full_attention", "full_attention"],
    "activation_sparsity_pattern": [0.75, 0.75, 0.0, 0.0, 0.0, 0.0],
    "vocab_size_per_layer_input": 131, "hidden_size_per_layer_input": 17, "laurel_rank": 29, "attention_bias": True,
}  # fmt: skip
VARIANTS = {
    "unscaled, of several widths": {
        **TINY, "altup_correct_scale": False, "num_kv_shared_layers": 0, "intermediate_size": [71, 71, 71, 73, 71, 71],
    },
}  # fmt: skip
LOGITS = {"": TINY, **{f"{name}": config for name, config in VARIANTS.items()}}
SILENT = {"altup_coef_clip": 3.0}
REQUIRED = {"num_hidden_layers": 20, "hidden_size": 128}


def drawn(draw: Draw) -> Fields:
    fields = layer_types(draw, llama_like(draw, null_kv=False, head_dim=False))
    layers = fields["num_hidden_layers"]
    fields |= {"head_dim": draw(EVEN), "sliding_window": draw(WINDOW), "laurel_rank": draw(SMALL)}
    fields |= {"hidden_size_per_layer_input": draw(SMALL), "vocab_size_per_layer_input": draw(VOCAB) + 40}
    fields |= {"pad_token_id": 0}
    kinds = fields.get("layer_types") or [
        "sliding_attention" if (number + 1) % 5 else "full_attention" for number in range(layers)
    ]
    shared = [n for n in range(layers) if {*kinds} == {*kinds[: layers - n]}]
    fields["num_kv_shared_layers"] = draw(st.sampled_from(shared))
    if draw(ON):
        fields["intermediate_size"] = draw(st.lists(WIDTH, min_size=layers, max_size=layers))
    pattern = st.none() | st.lists(st.sampled_from([0.0, 0.5, 0.9]), min_size=layers, max_size=layers)
    some(draw, fields, attention_bias=ON, altup_correct_scale=ON, final_logit_softcapping=st.just(3.0))
    return some(draw, fields, activation_sparsity_pattern=pattern)


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1], layer_types=["full_attention"] * of.L)
    Ru, Vp, *_ = of.more
    own = {"hidden_size_per_layer_input": of.P, "vocab_size_per_layer_input": Vp + 400, "laurel_rank": Ru}
    own |= {"num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.0] * of.L}
    letters = {"Dy": of.P, "Vp": Vp + 400, "Lp": of.L, "Ru": Ru, "Xo": 3, "Xs": 4, "Xt": 4, "Xu": 4, "Do": of.D}
    return {**config, **own}, {**sizes, **letters}
