"""Test configs of the deepseek_v4 lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, SMALL, VOCAB, WIDTH, WINDOW, Draw, Fields, experts, some


class DeepseekV4:
    PLAIN, LIGHT, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
    TINY = {
        "model_type": "deepseek_v4", "vocab_size": 173, "hidden_size": 52, "num_hidden_layers": 3,
        "num_attention_heads": 66, "head_dim": 22, "qk_rope_head_dim": 8, "q_lora_rank": 31, "o_groups": 6,
        "o_lora_rank": 17, "sliding_window": 7, "layer_types": [PLAIN, LIGHT, HEAVY],
        "compress_rates": {LIGHT: 2, HEAVY: 4}, "index_n_heads": 14, "index_head_dim": 15, "index_topk": 10,
        "hc_mult": 5, "moe_intermediate_size": 37, "n_routed_experts": 19, "num_experts_per_tok": 16,
        "max_position_embeddings": 109, "hc_sinkhorn_iters": 3, "num_hash_layers": 1,
    }  # fmt: skip
    EVERY = {**TINY, "num_experts_per_tok": 19, "swiglu_limit": 0.4}
    LOGITS = {  # of every expert: the reference's routing is fixed
        "": EVERY,
        "of other scores": {**EVERY, "num_hash_layers": 0, "scoring_func": "sigmoid", "index_topk": 2, "hc_mult": 2},
    }
    SILENT = {"topk_method": "noaux_tc", "num_nextn_predict_layers": 2, "expert_dtype": "fp4", "attention_dropout": 0.1}
    REQUIRED = {"num_hidden_layers": 3, "layer_types": [HEAVY, LIGHT, PLAIN], "n_routed_experts": 8}

    def drawn(draw: Draw) -> Fields:
        """Kinds of layers as names, as ratios, or by default; rates in either spelling."""
        groups, layers, size = draw(SMALL), draw(st.integers(1, 4)), draw(EVEN) + 2
        turned = 2 * draw(st.integers(1, size // 2))
        fields = {
            "hidden_size": draw(WIDTH), "num_hidden_layers": layers, "num_attention_heads": groups * draw(SMALL),
            "head_dim": size, "o_groups": groups, "o_lora_rank": draw(SMALL), "q_lora_rank": draw(SMALL),
            "vocab_size": draw(VOCAB), "sliding_window": draw(WINDOW), "hc_mult": draw(SMALL),
            "moe_intermediate_size": draw(SMALL), "index_n_heads": draw(SMALL), "index_topk": draw(SMALL),
            "index_head_dim": turned + draw(st.integers(0, 3)), "qk_rope_head_dim": turned,
            "hc_sinkhorn_iters": draw(st.integers(1, 3)), **experts(draw, "n_routed_experts"),
        }  # fmt: skip
        rates = {DeepseekV4.LIGHT: draw(SMALL), DeepseekV4.HEAVY: draw(SMALL)}
        if draw(st.booleans()):
            fields["compress_rates"] = rates
        else:
            fields |= {"compress_rate_csa": rates[DeepseekV4.LIGHT], "compress_rate_hca": rates[DeepseekV4.HEAVY]}
        more = layers + draw(st.integers(0, 2))
        if draw(st.booleans()):
            fields["layer_types"] = draw(
                st.lists(
                    st.sampled_from([DeepseekV4.PLAIN, DeepseekV4.LIGHT, DeepseekV4.HEAVY]),
                    min_size=layers,
                    max_size=more,
                )
            )
        else:
            some(draw, fields, compress_ratios=st.lists(st.sampled_from([0, 4, 128]), min_size=layers, max_size=more))
        some(draw, fields, num_hash_layers=st.integers(0, 5), tie_word_embeddings=st.booleans(), mlp_bias=st.booleans())
        return fields
