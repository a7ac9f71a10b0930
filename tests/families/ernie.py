"""Test configs of the ernie lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, Draw, Fields, llama_like, some


class Ernie4_5:
    TINY = {
        "model_type": "ernie4_5", "vocab_size": 199, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 43, "use_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "untied": {**TINY, "use_bias": False, "tie_word_embeddings": False}}

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw), use_bias=ON, head_dim=st.none() | EVEN)


class Ernie4_5_Moe:
    TINY = {
        "model_type": "ernie4_5_moe", "vocab_size": 173, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 61,
        "use_bias": True, "moe_intermediate_size": 37, "moe_num_experts": 10, "moe_num_shared_experts": 3,
        "moe_k": 4,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "moe_k": 10}}  # the reference's routing is fixed

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, null_kv=False, head_dim=False)
        count = draw(SMALL)
        fields |= {"moe_num_experts": count, "moe_k": draw(st.integers(1, count)), "moe_intermediate_size": draw(SMALL)}
        return some(
            draw,
            fields,
            use_bias=ON,
            moe_num_shared_experts=st.integers(0, 3),
            moe_layer_start_index=st.integers(0, 3),
            moe_layer_end_index=st.integers(-1, 4),
            moe_layer_interval=st.integers(1, 3),
        )


class Ernie4_5_VLMoe:
    TINY = {
        "model_type": "ernie4_5_vl_moe_text", "vocab_size": 173, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 61,
        "use_bias": True, "moe_intermediate_size": [37, 23], "moe_num_experts": 10, "moe_num_shared_experts": 3,
        "moe_k": 4,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default", "mrope_section": [1, 1, 2]},
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "moe_k": 10}}  # the reference's routing is fixed

    def angles(half: int) -> Fields:
        """Angles of a head's pairs, for rows, columns and frames: the class asks for two alike, and a third."""
        each = (half - 1) // 2
        sections = {"mrope_section": [each, each, half - 2 * each]}
        return {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default", **sections}}

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, null_kv=False, head_dim=False)
        count = draw(SMALL)
        fields |= {"moe_num_experts": count, "moe_k": draw(st.integers(1, count))}
        fields |= {"moe_intermediate_size": [draw(SMALL), draw(SMALL)]}
        fields |= Ernie4_5_VLMoe.angles(fields["hidden_size"] // fields["num_attention_heads"] // 2)
        layers = fields["num_hidden_layers"]
        kinds = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
        return some(
            draw, fields, use_bias=ON, moe_num_shared_experts=st.integers(0, 3), mlp_layer_types=st.none() | kinds
        )
