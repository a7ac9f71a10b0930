"""ZAYA1: queries and keys behind convolutions, experts whose routers go on from one another."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, VOCAB, WIDTH, WINDOW, Draw, Fields, some
from tests.families._sizes import Distinct, Sized, grouped, routed

KINDS = ("hybrid", "hybrid_sliding")
TURNED = {"rope_type": "default", "rope_theta": 1e4}
HALF = {**TURNED, "partial_rotary_factor": 0.48}
TINY = {
    "model_type": "zaya", "vocab_size": 127, "hidden_size": 46, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 26, "moe_intermediate_size": 31, "num_experts": 15, "router_hidden_size": 22,
    "cca_time0": 5, "cca_time1": 11, "max_position_embeddings": 63, "sliding_window": 7,
    "layer_types": ["hybrid", "hybrid_sliding", "hybrid"],
    "rope_parameters": {"hybrid": HALF, "hybrid_sliding": HALF},
}  # fmt: skip
ALONE = {**TINY, "num_experts": 1}
LOGITS = {
    "": ALONE,
    "biased": {**ALONE, "attention_bias": True, "lm_head_bias": True, "tie_word_embeddings": False},
}
REQUIRED: Fields = {}
FACTORS = (0.5, 1.0)


def drawn(draw: Draw) -> Fields:
    layers, kv_heads = draw(st.integers(1, 4)), draw(SMALL)
    kinds = st.sampled_from(KINDS)
    fields = {
        "hidden_size": draw(WIDTH),
        "num_hidden_layers": layers,
        "num_attention_heads": draw(SMALL) * kv_heads,
        "num_key_value_heads": kv_heads,
        "head_dim": 4 * draw(SMALL),
        "vocab_size": draw(VOCAB),
        "moe_intermediate_size": draw(WIDTH),
        "num_experts": draw(SMALL),
        "router_hidden_size": draw(WIDTH),
        "sliding_window": draw(WINDOW),
    }
    times = st.integers(2, 5)
    some(draw, fields, cca_time0=times, cca_time1=times, attention_bias=ON, lm_head_bias=ON, tie_word_embeddings=ON)
    if draw(ON):
        turned = {**TURNED, "partial_rotary_factor": draw(st.sampled_from(FACTORS))}
        fields["rope_parameters"] = dict.fromkeys(KINDS, turned)
    return some(draw, fields, layer_types=st.none() | st.lists(kinds, min_size=layers, max_size=layers))


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, num_hidden_layers=1, attention_bias=of.on[1], lm_head_bias=of.on[2])
    config, sizes = routed((config, sizes), of.more, "num_experts", "moe_intermediate_size")
    first, second, width = of.more[3:6]
    config |= {"cca_time0": first + 1, "cca_time1": second + 1, "router_hidden_size": width, "num_experts_per_tok": 1}
    config |= {"head_dim": 4 * of.H}
    sizes |= {"Ka": first, "Ks": second, "Kq": first + 1, "Kw": second + 1, "Kl": first + second}
    sizes |= {"H": 4 * of.H, "Ho": 4 * of.H, "Hj": 2 * of.H, "Hr": 2 * of.H, "Nj": of.K * of.G + of.K}
    sizes |= {"Rr": width, "Rm": width, "A": 1, "Ez": 1, "Er": sizes["E"] + 1}
    return {name: value for name, value in config.items() if name != "intermediate_size"}, {**sizes, "L": 1}
