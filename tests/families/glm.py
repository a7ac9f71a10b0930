"""Test configs of the glm lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, Draw, Fields, llama_like, some


class Glm:
    TINY = {
        "model_type": "glm", "vocab_size": 317, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 71, "max_position_embeddings": 91,
        "pad_token_id": 0,
    }  # fmt: skip
    LOGITS = {"": TINY, "whole": {**TINY, "attention_bias": False, "partial_rotary_factor": 1.0}}

    def drawn(draw: Draw) -> Fields:
        fields = {**llama_like(draw, null_kv=False), "pad_token_id": 0}  # whose default is past a small vocabulary
        fields["head_dim"], whole = draw(EVEN), draw(ON)
        fields |= {"partial_rotary_factor": 1.0} if whole else {"head_dim": 2 * fields["head_dim"]}
        return some(draw, fields, attention_bias=ON)


class Glm4(Glm):
    TINY = {**Glm.TINY, "model_type": "glm4", "vocab_size": 331}

    def drawn(draw: Draw) -> Fields:
        return Glm.drawn(draw)


class Glm4Moe:
    TINY = {
        "model_type": "glm4_moe", "vocab_size": 359, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 71,
        "max_position_embeddings": 103, "attention_bias": True, "use_qk_norm": True, "moe_intermediate_size": 37,
        "n_routed_experts": 7, "n_shared_experts": 2, "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids
    REQUIRED = {"num_hidden_layers": 2, "head_dim": 128}  # 4,096 / 96 is no whole number

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, null_kv=False)
        fields["head_dim"], whole = draw(EVEN), draw(ON)
        fields |= {"partial_rotary_factor": 1.0} if whole else {"head_dim": 2 * fields["head_dim"]}
        count = draw(st.integers(2, 6))  # of a group the class looks at two
        fields |= {"n_routed_experts": count, "num_experts_per_tok": draw(st.integers(1, count))}
        fields |= {"moe_intermediate_size": draw(SMALL), "n_shared_experts": draw(st.integers(1, 3))}
        return some(draw, fields, attention_bias=ON, use_qk_norm=ON, first_k_dense_replace=st.integers(0, 5))


class SolarOpen:
    TINY = {
        "model_type": "solar_open", "vocab_size": 389, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "max_position_embeddings": 117,
        "attention_bias": True, "moe_intermediate_size": 37, "n_routed_experts": 7, "n_shared_experts": 2,
        "num_experts_per_tok": 4,
    }  # fmt: skip
    LOGITS: dict[str, Fields] = {}  # the class weighs experts by sigmoids

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, null_kv=False) | {"head_dim": draw(EVEN)}
        fields.pop("intermediate_size")
        count = draw(st.integers(2, 6))  # of a group the class looks at two
        fields |= {"n_routed_experts": count, "num_experts_per_tok": draw(st.integers(1, count))}
        fields |= {"moe_intermediate_size": draw(SMALL), "n_shared_experts": draw(st.integers(1, 3))}
        return some(draw, fields, attention_bias=ON)
