"""Gemma 4's language model: heads of their own in full layers, borrowed keys, rows of every layer."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, VOCAB, WINDOW, Draw, Fields, layer_types, llama_like, some
from tests.families._sizes import Distinct, Sized, grouped

TINY = {
    "model_type": "gemma4_text", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 6,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "global_head_dim": 14,
    "intermediate_size": 71, "max_position_embeddings": 63, "sliding_window": 5, "num_kv_shared_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                    "full_attention", "full_attention"],
    "use_double_wide_mlp": True, "vocab_size_per_layer_input": 131, "hidden_size_per_layer_input": 17,
    "attention_bias": True,
}  # fmt: skip
ALIKE = {
    **TINY, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True,
    "num_global_key_value_heads": 3, "attention_bias": False, "final_logit_softcapping": 3.0,
}  # fmt: skip
ROUTED = {
    **ALIKE, "enable_moe_block": True, "num_experts": 8, "top_k_experts": 4, "moe_intermediate_size": 37,
}  # fmt: skip
LAYERS_OWN = {
    **ALIKE, "per_layer_config": {n: {"head_dim": 18, "num_key_value_heads": 3} for n in ("1", "04", "5")},
}  # fmt: skip
VARIANTS = {"keys as values": ALIKE, "moe": ROUTED, "layers of their own": LAYERS_OWN}
LOGITS = {"": TINY, "keys as values": ALIKE, "of every expert": {**ROUTED, "top_k_experts": 8}}
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    fields = layer_types(draw, llama_like(draw, null_kv=False, head_dim=False))
    heads, layers = fields["num_attention_heads"], fields["num_hidden_layers"]
    fields |= {"head_dim": draw(EVEN), "global_head_dim": draw(EVEN), "sliding_window": draw(WINDOW)}
    fields |= {"hidden_size_per_layer_input": draw(st.integers(0, 5)), "vocab_size_per_layer_input": draw(VOCAB) + 40}
    fields |= {"pad_token_id": 0}
    kinds = [*(fields.get("layer_types") or ["sliding_attention"] * layers)[:-1], "full_attention"]
    most = [n for n in range(layers) if {*kinds[layers - n :]} <= {*kinds[: layers - n]}]
    if fields["hidden_size_per_layer_input"]:  # without rows the class cannot run layers that borrow
        whole = [n for n in most if {*kinds} == {*kinds[: layers - n]}]
        fields["num_kv_shared_layers"] = draw(st.sampled_from(whole or [0]))
    if draw(ON):
        count = draw(SMALL)
        fields |= {"enable_moe_block": True, "num_experts": count, "top_k_experts": draw(st.integers(1, count))}
        fields |= {"moe_intermediate_size": draw(SMALL)}
    divisors = [count for count in range(1, heads + 1) if heads % count == 0]
    if not fields.get("num_kv_shared_layers"):
        own = st.fixed_dictionaries({}, optional={"head_dim": EVEN, "num_key_value_heads": st.sampled_from(divisors)})
        alike = st.fixed_dictionaries(dict.fromkeys(sorted({*kinds}), own))  # of one type all, or the class refuses
        each = alike.map(lambda of: {str(number): of[kind] for number, kind in enumerate(kinds)})
        some(draw, fields, per_layer_config=each)
    return some(
        draw,
        fields,
        attention_bias=ON,
        use_double_wide_mlp=ON,
        attention_k_eq_v=ON,
        num_global_key_value_heads=st.none() | st.sampled_from(divisors),
        final_logit_softcapping=st.none() | SMALL.map(float),
    )


def sized(of: Distinct) -> Sized:
    config, sizes = grouped(of, attention_bias=of.on[1], layer_types=["full_attention"] * of.L)
    own = {"global_head_dim": of.H, "hidden_size_per_layer_input": of.P, "vocab_size_per_layer_input": of.more[0] + 400}
    return {**config, **own}, {**sizes, "Dy": of.P, "Vp": of.more[0] + 400, "Lp": of.L}
