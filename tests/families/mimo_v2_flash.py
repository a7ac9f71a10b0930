"""MiMo-V2-Flash: values of a size of their own, other key heads in windowed layers, experts."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, VOCAB, WIDTH, WINDOW, Draw, Fields, layer_types, some
from tests.families._sizes import Distinct, Sized, grouped, routed

TINY = {
    "model_type": "mimo_v2_flash", "vocab_size": 179, "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 12, "num_key_value_heads": 2, "head_dim": 30, "v_head_dim": 22, "intermediate_size": 71,
    "max_position_embeddings": 83, "attention_bias": True, "moe_intermediate_size": 37, "n_routed_experts": 8,
    "num_experts_per_tok": 5, "sliding_window": 7,
}  # fmt: skip
LOGITS = {"": {**TINY, "mlp_layer_types": ["dense"] * 3}}  # the class weighs experts by sigmoids
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    kv, count = draw(SMALL), draw(st.integers(2, 6))  # of a group the class looks at two
    fields = {
        "num_hidden_layers": draw(st.integers(1, 7)), "num_key_value_heads": kv, "vocab_size": draw(VOCAB),
        "num_attention_heads": 2 * kv * draw(st.integers(1, 3)), "hidden_size": draw(WIDTH),
        "intermediate_size": draw(WIDTH), "head_dim": draw(st.sampled_from([6, 8, 12, 14])), "v_head_dim": draw(SMALL),
        "n_routed_experts": count, "num_experts_per_tok": draw(st.integers(1, count)),
        "moe_intermediate_size": draw(SMALL), "sliding_window": draw(WINDOW),
    }  # fmt: skip
    layers = fields["num_hidden_layers"]
    listed = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
    some(draw, fields, attention_bias=ON, mlp_layer_types=st.none() | listed, sliding_window_size=WINDOW)
    return layer_types(draw, some(draw, fields, tie_word_embeddings=ON))


def sized(of: Distinct) -> Sized:
    own = {"attention_bias": of.on[1], "layer_types": ["full_attention"] * of.L, "mlp_layer_types": ["sparse"] * of.L}
    config, sizes = grouped(of, **own, v_head_dim=of.P)
    config["head_dim"] = sizes["H"] = 6 * of.H  # a third of it is rotated
    config, sizes = routed((config, sizes), of.more, "n_routed_experts", "moe_intermediate_size")
    return config, {**sizes, "Hv": of.P, "Hr": int(sizes["H"] * 0.334)}
