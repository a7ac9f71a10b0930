"""Test configs of the lfm lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import EVEN, ON, SMALL, VOCAB, WIDTH, WINDOW, Draw, Fields, llama_like, some, without


class Lfm2:
    TINY = {
        "model_type": "lfm2", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 97, "max_position_embeddings": 103,
        "block_multiple_of": 13, "block_ffn_dim_multiplier": 1.1, "conv_L_cache": 5, "conv_bias": True,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
    }  # fmt: skip
    LOGITS = {
        "": TINY,
        "of one token's convolution": {**TINY, "conv_bias": False, "conv_L_cache": 1},
        "of attention alone": {**TINY, "layer_types": None, "block_auto_adjust_ff_dim": False},
    }
    SILENT = {"conv_dim": 48, "conv_dim_out": 48, "block_dim": 48, "block_use_swiglu": True, "block_norm_eps": 1e-5}
    REQUIRED = {"num_hidden_layers": 3}

    def drawn(draw: Draw) -> Fields:
        """Sizes of attention and convolutions; which layers have attention said in either way, or not."""
        heads, kv = draw(SMALL), draw(SMALL)
        fields: Fields = {"num_attention_heads": heads * kv, "num_key_value_heads": kv, "vocab_size": draw(VOCAB)}
        fields |= {"hidden_size": heads * kv * draw(EVEN), "num_hidden_layers": draw(st.integers(1, 4))}
        layers = fields["num_hidden_layers"]
        kinds = draw(st.lists(st.sampled_from(["conv", "full_attention"]), min_size=layers, max_size=layers))
        attends = [draw(st.integers(0, layers - 1))]  # the class wants one layer with attention
        kinds[attends[0]] = "full_attention"
        listed = {"full_attn_idxs": attends + draw(st.lists(st.integers(0, 4)))}
        fields |= {"layer_types": kinds} if draw(ON) else draw(st.sampled_from([{}, listed]))
        some(draw, fields, head_dim=EVEN, conv_L_cache=st.integers(1, 9), conv_bias=ON, tie_word_embeddings=ON)
        fields["intermediate_size"] = 3 + draw(WIDTH)
        some(
            draw,
            fields,
            block_ff_dim=st.integers(3, 40),
            block_auto_adjust_ff_dim=ON,
            block_multiple_of=st.integers(1, 20),
        )
        return some(draw, fields, block_ffn_dim_multiplier=st.sampled_from([0.7, 1.0, 1.3]))


class Lfm2Moe:
    OWN = (
        "block_multiple_of",
        "block_ffn_dim_multiplier",
        "block_auto_adjust_ff_dim",
        "block_ff_dim",
        "full_attn_idxs",
    )
    TINY = {
        **without(Lfm2.TINY, *OWN), "model_type": "lfm2_moe", "moe_intermediate_size": 37, "num_experts": 7,
        "num_experts_per_tok": 4, "num_dense_layers": 1,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "num_dense_layers": 4}}  # dense layers only: the class weighs experts by sigmoids
    SILENT = {"routed_scaling_factor": 2.0, "use_expert_bias": True, "norm_topk_prob": False}
    REQUIRED = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1}

    def drawn(draw: Draw) -> Fields:
        fields = without(Lfm2.drawn(draw), *Lfm2Moe.OWN)
        layers, count = fields["num_hidden_layers"], draw(SMALL)
        kinds = draw(st.lists(st.sampled_from(["conv", "full_attention"]), min_size=layers, max_size=layers))
        fields["layer_types"] = [*kinds[1:], "full_attention"]
        fields |= {"num_experts": count, "num_experts_per_tok": draw(st.integers(1, count))}
        return some(draw, fields, moe_intermediate_size=SMALL, num_dense_layers=st.integers(0, 5))


class Lfm3:
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
        kinds = draw(st.lists(st.sampled_from(Lfm3.KINDS), min_size=layers, max_size=layers))
        kinds[draw(st.integers(0, layers - 1))] = draw(st.sampled_from([Lfm3.FULL, Lfm3.SLIDING]))
        fields |= {} if layers > 2 and draw(ON) else {"layer_types": kinds}
        fields |= {"sliding_window": draw(WINDOW), "pad_token_id": 0}
        some(draw, fields, conv_L_cache=st.integers(1, 9), conv_bias=ON, attention_bias=ON)
        return some(draw, fields, use_attention_gate=ON, use_sandwich_norm=ON)
