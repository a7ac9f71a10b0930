"""Test configs of the exaone lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WINDOW, Draw, Fields, layer_types, llama_like, some


class Exaone:
    TINY = {
        "model_type": "exaone", "vocab_size": 199, "hidden_size": 60, "num_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 3, "intermediate_size": 73, "max_position_embeddings": 43, "tie_word_embeddings": False,
        "activation_function": "silu",
    }  # fmt: skip
    RUN_BY = "Llama"

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, head_dim=False)
        return {**fields, "num_layers": fields.pop("num_hidden_layers")}


class Exaone4:
    TINY = {
        "model_type": "exaone4", "vocab_size": 281, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 69,
        "sliding_window": 5, "sliding_window_pattern": 2,
    }  # fmt: skip
    ALL_FULL = {"sliding_window": None, "layer_types": ["full_attention"] * 3}
    VARIANTS = {"without windows": {**TINY, **ALL_FULL}}
    LOGITS = {"": TINY, "without windows": VARIANTS["without windows"]}

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, null_kv=False)
        if draw(st.booleans()):
            full = ["full_attention"] * fields["num_hidden_layers"]
            return fields | {"sliding_window": None, "layer_types": full}
        fields = layer_types(draw, fields | {"sliding_window": draw(WINDOW)})
        return some(draw, fields, sliding_window_pattern=st.integers(1, 5))


class ExaoneMoe:
    TINY = {
        "model_type": "exaone_moe", "vocab_size": 397, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 119, "sliding_window": 5, "sliding_window_pattern": 2, "moe_intermediate_size": 37,
        "num_experts": 7, "num_shared_experts": 2, "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids

    def drawn(draw: Draw) -> Fields:
        fields = layer_types(draw, llama_like(draw, null_kv=False) | {"sliding_window": draw(WINDOW)})
        some(draw, fields, sliding_window_pattern=st.integers(1, 5))
        count, layers = draw(st.integers(2, 6)), fields["num_hidden_layers"]  # of a group the class looks at two
        fields |= {"num_experts": count, "num_experts_per_tok": draw(st.integers(1, count))}
        fields |= {"moe_intermediate_size": draw(SMALL), "num_shared_experts": draw(st.integers(1, 3))}
        kinds = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
        return some(draw, fields, first_k_dense_replace=st.integers(0, 5), mlp_layer_types=st.none() | kinds)
