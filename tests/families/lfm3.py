"""LFM3: short convolutions, attention with and without a window, a gate for each head, norms around sublayers."""

from hypothesis import strategies as st

from tests.families._drawing import ON, SMALL, WINDOW, Draw, Fields, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

CONV, FULL, SLIDING = KINDS = "conv", "full_attention", "sliding_attention"
TINY = {
    "model_type": "lfm3", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 97, "max_position_embeddings": 103,
    "conv_L_cache": 5, "conv_bias": True, "attention_bias": True, "sliding_window": 7,
    "layer_types": [CONV, FULL, SLIDING, CONV], "pad_token_id": 0,
}  # fmt: skip
LOGITS = {"": TINY, "without gates and norms": {**TINY, "use_attention_gate": False, "use_sandwich_norm": False}}
REQUIRED = {"num_hidden_layers": 3}


def drawn(draw: Draw) -> Fields:
    """Which layers have attention, said or not: the class wants one that has it."""
    fields = llama_like(draw, null_kv=False, head_dim=False) | {"head_dim": 4 * draw(SMALL)}
    layers = fields["num_hidden_layers"] = draw(st.integers(1, 6))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=layers, max_size=layers))
    kinds[draw(st.integers(0, layers - 1))] = draw(st.sampled_from([FULL, SLIDING]))
    fields |= {} if layers > 2 and draw(ON) else {"layer_types": kinds}
    fields |= {"sliding_window": draw(WINDOW), "pad_token_id": 0}
    some(draw, fields, conv_L_cache=st.integers(1, 9), conv_bias=ON, attention_bias=ON)
    return some(draw, fields, use_attention_gate=ON, use_sandwich_norm=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, conv_bias=of.on[1], conv_L_cache=of.P, use_attention_gate=of.on[2])
    if of.seed % 2:
        own = {letter: sizes[letter] for letter in "DFVLBTS"}
        return {**config, "layer_types": [CONV] * of.L}, {**own, "Kc": of.P, "Dg": 3 * of.D, "Do": of.D}
    return {**config, "layer_types": [FULL] * of.L}, sizes
