"""Test configs of the gpt lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import (
    EVEN,
    LAYERS,
    ON,
    PLAIN,
    SMALL,
    VOCAB,
    WIDTH,
    WINDOW,
    Draw,
    Fields,
    of_whole_heads,
    some,
    without,
)


class GPT2:
    TINY = {
        "model_type": "gpt2", "vocab_size": 59, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 37,
        "n_inner": 67,
    }  # fmt: skip
    LOGITS = {"": TINY, "gelu": {**TINY, "activation_function": "gelu", "layer_norm_epsilon": 1e-3}}
    REQUIRED = {"vocab_size": 37, "n_embd": 48, "n_layer": 2, "n_head": 4}

    def drawn(draw: Draw) -> Fields:
        heads = draw(SMALL) * draw(SMALL)
        fields = {"n_embd": heads * draw(EVEN), "n_layer": draw(st.integers(1, 3)), "n_head": heads}
        fields |= {"vocab_size": draw(VOCAB), "n_positions": draw(st.integers(20, 40))}
        return some(draw, fields, n_inner=st.none() | WIDTH, tie_word_embeddings=ON)


class GPTBigCode:
    TINY = {
        "model_type": "gpt_bigcode", "vocab_size": 307, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 79,
        "n_inner": 67,
    }  # fmt: skip
    VARIANTS = {"of many heads": {**TINY, "multi_query": False, "tie_word_embeddings": False}}
    LOGITS = {"": TINY}
    REQUIRED = {"n_layer": 2}  # every size has a default

    def drawn(draw: Draw) -> Fields:
        heads = draw(SMALL) * draw(SMALL)
        fields = {"n_embd": heads * draw(EVEN), "n_layer": draw(st.integers(1, 3)), "n_head": heads}
        fields |= {"vocab_size": draw(VOCAB), "n_positions": draw(st.integers(20, 40))}
        return some(draw, fields, n_inner=st.none() | WIDTH, tie_word_embeddings=ON, multi_query=ON)


class GPTNeo:
    TINY = {
        "model_type": "gpt_neo", "vocab_size": 353, "hidden_size": 42, "num_layers": 2, "num_heads": 6,
        "intermediate_size": 67, "max_position_embeddings": 101, "window_size": 5,
        "attention_types": [[["global", "local"], 1]],
    }  # fmt: skip
    REQUIRED = {"num_layers": 2, "attention_types": [[["global", "local"], 1]]}  # every size has a default

    def drawn(draw: Draw) -> Fields:
        heads = draw(SMALL) * draw(SMALL)
        kinds = draw(st.lists(st.sampled_from(["global", "local"]), min_size=1, max_size=3))
        fields = {"hidden_size": heads * draw(SMALL), "num_layers": len(kinds), "num_heads": heads}
        fields |= {"attention_types": [[[kind], 1] for kind in kinds], "window_size": draw(WINDOW)}
        fields |= {"vocab_size": draw(VOCAB), "max_position_embeddings": draw(st.integers(20, 40))}
        return some(draw, fields, intermediate_size=st.none() | WIDTH, tie_word_embeddings=ON)


class GPTJ:
    TINY = {
        "model_type": "gptj", "vocab_size": 311, "n_embd": 60, "n_layer": 2, "n_head": 6, "n_positions": 83,
        "n_inner": 67, "rotary_dim": 4,
    }  # fmt: skip
    REQUIRED = {"n_layer": 2}  # every size has a default

    def of_parts(draw: Draw, parts: int) -> Fields:
        """Heads in so many parts."""
        heads, turned = parts * draw(SMALL), draw(EVEN)
        fields = {"n_embd": heads * (turned + draw(st.integers(0, 4))), "n_layer": draw(st.integers(1, 3))}
        fields |= {
            "n_head": heads,
            "rotary_dim": turned,
            "vocab_size": draw(VOCAB),
            "n_positions": draw(st.integers(20, 40)),
        }
        return some(draw, fields, n_inner=st.none() | WIDTH, tie_word_embeddings=ON)

    def drawn(draw: Draw) -> Fields:
        return GPTJ.of_parts(draw, 1)


class CodeGen(GPTJ):
    TINY = {
        "model_type": "codegen", "vocab_size": 313, "n_embd": 80, "n_layer": 2, "n_head": 8, "n_positions": 89,
        "n_inner": 67, "rotary_dim": 6,
    }  # fmt: skip
    LOGITS = {}  # its matrix holds q, v and k in four parts

    def drawn(draw: Draw) -> Fields:
        return GPTJ.of_parts(draw, 4)


class OpenAIGPT:
    TINY = {"model_type": "openai-gpt", "vocab_size": 461, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 37}
    LOGITS = {"": TINY, "relu": {**TINY, "afn": "relu", "layer_norm_epsilon": 1e-3}}
    REQUIRED = {"n_layer": 2}  # every size has a default

    def drawn(draw: Draw) -> Fields:
        heads = draw(SMALL) * draw(SMALL)
        fields = {"n_embd": heads * draw(EVEN), "n_layer": draw(st.integers(1, 3)), "n_head": heads}
        fields |= {"vocab_size": draw(VOCAB), "n_positions": draw(st.integers(20, 40))}
        return some(draw, fields, tie_word_embeddings=ON)


class CTRL:
    TINY = {
        "model_type": "ctrl", "vocab_size": 463, "n_embd": 42, "n_layer": 2, "n_head": 6, "dff": 71, "n_positions": 37,
    }  # fmt: skip
    LOGITS = {"": TINY, "of odd width": {**TINY, "n_embd": 45, "n_head": 5, "layer_norm_epsilon": 1e-3}}
    REQUIRED = {"n_layer": 2}  # every size has a default

    def drawn(draw: Draw) -> Fields:
        heads = draw(SMALL) * draw(SMALL)
        fields = {"n_embd": heads * draw(SMALL), "n_layer": draw(st.integers(1, 3)), "n_head": heads}
        fields |= {"vocab_size": draw(VOCAB), "dff": draw(WIDTH), "n_positions": draw(st.integers(20, 40))}
        return some(draw, fields, tie_word_embeddings=ON)


class JAIS:
    LEARNED = {
        "model_type": "jais", "vocab_size": 449, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 37,
        "n_inner": 67, "mup_embeddings_scale": 9.1, "mup_scale_qk_dot_by_d": True, "mup_width_scale": 0.2,
        "mup_output_alpha": 1.1,
    }  # fmt: skip
    TINY = {**LEARNED, "position_embedding_type": "alibi", "activation_function": "swiglu"}
    VARIANTS = {"learned positions": LEARNED}
    SILENT = {"scale_attn_weights": True}


class CS336:
    TINY = {
        "model_type": "cs336", "vocab_size": 83, "context_length": 41, "num_layers": 2, "d_model": 48, "num_heads": 8,
        "d_ff": 89,
    }  # fmt: skip


class GPTNeoX:
    TINY = {
        "model_type": "gpt_neox", "vocab_size": 157, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 45, "rotary_pct": 0.4,
    }  # fmt: skip
    VARIANTS = {"sequential": {**TINY, "use_parallel_residual": False, "attention_bias": False}}
    LOGITS = {"": TINY, **VARIANTS}
    BY_HEAD = True
    REQUIRED = {**LAYERS, "num_attention_heads": 4}

    def drawn(draw: Draw) -> Fields:
        share = draw(st.sampled_from([0.25, 0.5, 1.0]))
        fields = of_whole_heads(draw, EVEN.map(lambda turned: int(turned / share)))
        fields |= {"intermediate_size": draw(WIDTH)}
        if share != 0.25:  # which is the class's own
            fields["rotary_pct"] = share
        return some(draw, fields, attention_bias=ON, use_parallel_residual=ON)


class GPTNeoXJapanese:
    TINY = {
        "model_type": "gpt_neox_japanese", "vocab_size": 463, "hidden_size": 60, "num_hidden_layers": 3,
        "num_attention_heads": 6, "intermediate_multiple_size": 3, "max_position_embeddings": 45, "rotary_pct": 0.4,
    }  # fmt: skip
    BY_HEAD = True

    def drawn(draw: Draw) -> Fields:
        share = draw(st.sampled_from([0.25, 0.5, 1.0]))
        fields = of_whole_heads(draw, EVEN.map(lambda turned: int(turned / share))) | {"rotary_pct": share}
        return some(draw, fields, intermediate_multiple_size=SMALL)


class Bloom:
    TINY = {
        "model_type": "bloom", "vocab_size": 173, "hidden_size": 60, "n_layer": 2, "n_head": 6, "seq_length": 35,
    }  # fmt: skip
    LOGITS = {"": TINY, "of six heads untied": {**TINY, "tie_word_embeddings": False}}
    CONTEXT = 2048
    BY_HEAD = True
    REQUIRED = {"vocab_size": 37, "hidden_size": 60, "n_layer": 2, "n_head": 6}

    def drawn(draw: Draw) -> Fields:
        fields = of_whole_heads(draw)
        if draw(ON):  # as the published files spell them
            fields |= {"n_layer": fields.pop("num_hidden_layers"), "n_head": fields.pop("num_attention_heads")}
        return fields


class Falcon:
    TINY = {
        "model_type": "falcon", "vocab_size": 163, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_kv_heads": 2, "new_decoder_architecture": True, "ffn_hidden_size": 71,
        "max_position_embeddings": 39,
    }  # fmt: skip
    ONE_KEY_HEAD = {**without(TINY, "num_kv_heads"), "new_decoder_architecture": False}
    VARIANTS = {
        "one key head": ONE_KEY_HEAD,
        "ALiBi": {**ONE_KEY_HEAD, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True},
    }
    # ALiBi is left out: the class scales the distances too, and rounds them to bfloat16.
    LOGITS = {
        "": TINY,
        "one norm": {**TINY, "num_ln_in_parallel_attn": 1},
        "one key head": ONE_KEY_HEAD,
        "every head its keys": {**ONE_KEY_HEAD, "multi_query": False, "bias": True},
        "sequential": {**ONE_KEY_HEAD, "parallel_attn": False},
    }
    SILENT = {"n_head": 6, "n_layer": 2, "n_embed": 60, "n_head_kv": 2, "n_inner": 71}
    BY_HEAD = True
    REQUIRED = PLAIN

    def drawn(draw: Draw) -> Fields:
        """40B's layout with any number of key heads, or 7B's and 1B's."""
        group, kv = draw(SMALL), draw(SMALL)
        heads, alibi = group * kv, draw(ON)
        fields = {"hidden_size": heads * draw(EVEN), "num_attention_heads": heads, "alibi": alibi}
        fields |= {"num_hidden_layers": draw(st.integers(1, 3)), "vocab_size": draw(VOCAB)}
        some(draw, fields, bias=ON, tie_word_embeddings=ON, ffn_hidden_size=WIDTH, multi_query=ON)
        if draw(ON):
            fields["new_decoder_architecture"] = True
            norms = st.none() | st.integers(1, 2)
            return some(draw, fields, num_kv_heads=st.none() | st.just(kv), num_ln_in_parallel_attn=norms)
        some(draw, fields, parallel_attn=ON, new_decoder_architecture=st.just(False))
        # The 7B's file says a number of key heads and has one.
        return some(draw, fields, num_kv_heads=st.just(heads)) if fields.get("multi_query", True) else fields


class Mpt:
    TINY = {"model_type": "mpt", "vocab_size": 349, "d_model": 42, "n_layers": 2, "n_heads": 6, "max_seq_len": 99}
    LOGITS = {"": TINY, "bounded": {**TINY, "attn_config": {"clip_qkv": 0.7, "softmax_scale": 0.3}}}
    REQUIRED = {"n_layers": 2}  # every size has a default
    CONTEXT = 2048

    def drawn(draw: Draw) -> Fields:
        heads = draw(st.integers(1, 12))
        fields = {"d_model": heads * draw(SMALL), "n_layers": draw(st.integers(1, 3)), "n_heads": heads}
        fields |= {"vocab_size": draw(VOCAB), "max_seq_len": draw(st.integers(20, 40))}
        own = st.fixed_dictionaries({"clip_qkv": st.none() | st.just(8.0), "softmax_scale": st.none() | st.just(0.5)})
        return some(draw, fields, tie_word_embeddings=ON, attn_config=own)


class OPT:
    TINY = {
        "model_type": "opt", "vocab_size": 167, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "ffn_dim": 71, "max_position_embeddings": 59,
    }  # fmt: skip
    VARIANTS = {"post-norm": {**TINY, "word_embed_proj_dim": 22, "do_layer_norm_before": False}}
    LOGITS = {
        "": TINY,
        **VARIANTS,
        "without biases": {**TINY, "enable_bias": False, "_remove_final_layer_norm": True},
    }
    REQUIRED = PLAIN

    def drawn(draw: Draw) -> Fields:
        fields = of_whole_heads(draw) | {"ffn_dim": draw(WIDTH), "max_position_embeddings": 25}
        switches = dict.fromkeys(("do_layer_norm_before", "enable_bias", "_remove_final_layer_norm"), ON)
        width = st.none() | SMALL | st.just(fields["hidden_size"])
        return some(draw, fields, word_embed_proj_dim=width, **switches)


class OpenELM:
    TINY = {
        "model_type": "openelm", "vocab_size": 467, "model_dim": 44, "num_transformer_layers": 3, "head_dim": 14,
        "max_context_length": 59, "num_query_heads": [6, 12, 12], "num_kv_heads": [2, 3, 3],
        "ffn_multipliers": [0.5, 1.3, 2.0], "ffn_dim_divisor": 16, "ffn_with_glu": True,
        "normalize_qk_projections": True, "share_input_output_layers": True,
    }  # fmt: skip
    VARIANTS = {
        "untied": {
            **TINY, "ffn_with_glu": False, "normalize_qk_projections": False, "share_input_output_layers": False,
        }
    }  # fmt: skip
    SILENT = {"num_gqa_groups": 4, "qkv_multipliers": [0.5, 1.0], "rope_max_length": 4096}


class Telechat:
    TINY = {
        "model_type": "telechat", "vocab_size": 457, "hidden_size": 60, "n_layer": 2, "n_head": 6,
        "num_key_value_heads": 3, "ffn_hidden_size": 83, "max_position_embeddings": 43, "tie_word_embeddings": False,
    }  # fmt: skip
    VARIANTS = {"tied": {**TINY, "num_key_value_heads": None, "tie_word_embeddings": True}}
    SILENT = {"logn": True, "intermediate_size": 1}


class BioGpt:
    TINY = {
        "model_type": "biogpt", "vocab_size": 449, "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "max_position_embeddings": 37, "pad_token_id": 0,
    }  # fmt: skip
    LOGITS = {"": TINY, "not scaled": {**TINY, "scale_embedding": False, "hidden_act": "relu"}}
    SILENT = {"layerdrop": 0.1}

    def drawn(draw: Draw) -> Fields:
        fields = of_whole_heads(draw) | {"intermediate_size": draw(WIDTH), "pad_token_id": 0}
        return some(draw, fields, scale_embedding=ON, max_position_embeddings=st.integers(25, 40))


class XGLM:
    TINY = {
        "model_type": "xglm", "vocab_size": 457, "d_model": 42, "num_layers": 2, "attention_heads": 6, "ffn_dim": 71,
        "max_position_embeddings": 21, "pad_token_id": 1,
    }  # fmt: skip
    LOGITS = {"": TINY, "not scaled": {**TINY, "scale_embedding": False, "activation_function": "relu"}}
    SILENT = {"layerdrop": 0.1, "init_std": 0.3}
    REQUIRED = {"num_layers": 2}  # every size has a default

    def drawn(draw: Draw) -> Fields:
        sizes = of_whole_heads(
            draw, SMALL.map(lambda part: 4 * part)
        )  # two sines at the least: of one there is no rate
        names = {"hidden_size": "d_model", "num_hidden_layers": "num_layers", "num_attention_heads": "attention_heads"}
        fields = {names.get(name, name): value for name, value in sizes.items()}
        return some(draw, fields | {"ffn_dim": draw(WIDTH)}, scale_embedding=ON)
