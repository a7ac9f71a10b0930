"""Test configs of the gemma lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import (
    EVEN,
    ON,
    PLAIN,
    SMALL,
    VOCAB,
    WIDTH,
    WINDOW,
    Draw,
    Fields,
    layer_types,
    llama_like,
    some,
    without,
)


class Gemma:
    TINY = {
        "model_type": "gemma", "vocab_size": 67, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 101, "max_position_embeddings": 51,
        "attention_bias": True, "hidden_act": "gelu",
    }  # fmt: skip
    REQUIRED = PLAIN

    def drawn(draw: Draw) -> Fields:
        return some(draw, llama_like(draw, null_kv=False), attention_bias=ON)


class Gemma2:
    TINY = {
        "model_type": "gemma2", "vocab_size": 113, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 57,
        "sliding_window": 5, "query_pre_attn_scalar": 12,
    }  # fmt: skip
    LOGITS = {"": TINY, "unbounded": {**TINY, "attn_logit_softcapping": None, "final_logit_softcapping": None}}
    REQUIRED = PLAIN

    def drawn(draw: Draw) -> Fields:
        fields = some(draw, llama_like(draw, null_kv=False), attention_bias=ON)
        caps = {name: st.none() | st.just(30.0) for name in ("final_logit_softcapping", "attn_logit_softcapping")}
        return some(draw, layer_types(draw, fields | {"sliding_window": draw(WINDOW)}), **caps)


class Gemma3Text:
    TINY = {
        "model_type": "gemma3_text", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 63, "sliding_window": 5, "sliding_window_pattern": 3, "query_pre_attn_scalar": 14,
    }  # fmt: skip
    LOGITS = {"": TINY, "both ways": {**TINY, "use_bidirectional_attention": True}}
    REQUIRED = PLAIN

    def drawn(draw: Draw) -> Fields:
        return some(draw, Gemma2.drawn(draw), sliding_window_pattern=st.integers(1, 4))


class VaultGemma:
    TINY = {**Gemma2.TINY, "model_type": "vaultgemma", "vocab_size": 283, "max_position_embeddings": 71}
    FEW = {**TINY, "num_hidden_layers": 2}  # more of them add up the class's roundings
    LOGITS = {"": FEW, "unbounded": {**FEW, "attn_logit_softcapping": None, "final_logit_softcapping": None}}

    def drawn(draw: Draw) -> Fields:
        return Gemma2.drawn(draw)


class Gemma3n:
    TINY = {
        "model_type": "gemma3n_text", "vocab_size": 127, "hidden_size": 50, "num_hidden_layers": 6,
        "num_attention_heads": 10, "num_key_value_heads": 2, "head_dim": 14, "intermediate_size": 71,
        "max_position_embeddings": 63, "sliding_window": 7, "num_kv_shared_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                        "full_attention", "full_attention"],
        "activation_sparsity_pattern": [0.75, 0.75, 0.0, 0.0, 0.0, 0.0],
        "vocab_size_per_layer_input": 131, "hidden_size_per_layer_input": 17, "laurel_rank": 29, "attention_bias": True,
    }  # fmt: skip
    VARIANTS = {
        "unscaled, of several widths": {
            **TINY, "altup_correct_scale": False, "num_kv_shared_layers": 0,
            "intermediate_size": [71, 71, 71, 73, 71, 71],
        },
    }  # fmt: skip
    LOGITS = {"": TINY, **{f"{name}": config for name, config in VARIANTS.items()}}
    SILENT = {"altup_coef_clip": 3.0}
    REQUIRED = {"num_hidden_layers": 20, "hidden_size": 128}

    def drawn(draw: Draw) -> Fields:
        fields = layer_types(draw, llama_like(draw, null_kv=False, head_dim=False))
        layers = fields["num_hidden_layers"]
        fields |= {"head_dim": draw(EVEN), "sliding_window": draw(WINDOW), "laurel_rank": draw(SMALL)}
        fields |= {"hidden_size_per_layer_input": draw(SMALL), "vocab_size_per_layer_input": draw(VOCAB) + 40}
        fields |= {"pad_token_id": 0}
        kinds = fields.get("layer_types") or [
            "sliding_attention" if (number + 1) % 5 else "full_attention" for number in range(layers)
        ]
        shared = [n for n in range(layers) if {*kinds} == {*kinds[: layers - n]}]
        fields["num_kv_shared_layers"] = draw(st.sampled_from(shared))
        if draw(ON):
            fields["intermediate_size"] = draw(st.lists(WIDTH, min_size=layers, max_size=layers))
        pattern = st.none() | st.lists(st.sampled_from([0.0, 0.5, 0.9]), min_size=layers, max_size=layers)
        some(draw, fields, attention_bias=ON, altup_correct_scale=ON, final_logit_softcapping=st.just(3.0))
        return some(draw, fields, activation_sparsity_pattern=pattern)


class Gemma4:
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

    def drawn(draw: Draw) -> Fields:
        fields = layer_types(draw, llama_like(draw, null_kv=False, head_dim=False))
        heads, layers = fields["num_attention_heads"], fields["num_hidden_layers"]
        fields |= {"head_dim": draw(EVEN), "global_head_dim": draw(EVEN), "sliding_window": draw(WINDOW)}
        fields |= {
            "hidden_size_per_layer_input": draw(st.integers(0, 5)),
            "vocab_size_per_layer_input": draw(VOCAB) + 40,
        }
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
            own = st.fixed_dictionaries(
                {}, optional={"head_dim": EVEN, "num_key_value_heads": st.sampled_from(divisors)}
            )
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


class EmbeddingGemma2Text:
    TINY = {
        "model_type": "embedding_gemma2_text", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "global_head_dim": 14,
        "num_global_key_value_heads": 3, "intermediate_size": 71, "max_position_embeddings": 63, "sliding_window": 2,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"], "hidden_size_per_layer_input": 17,
        "attention_bias": True, "embedding_dim": 29,
    }  # fmt: skip

    def drawn(draw: Draw) -> Fields:
        fields = without(layer_types(draw, llama_like(draw, null_kv=False, head_dim=False)), "tie_word_embeddings")
        heads, layers = fields["num_attention_heads"], fields["num_hidden_layers"]
        fields |= {"head_dim": draw(EVEN), "global_head_dim": draw(EVEN), "sliding_window": draw(SMALL)}
        fields |= {"hidden_size_per_layer_input": draw(SMALL), "embedding_dim": draw(SMALL), "pad_token_id": 0}
        divisors = [count for count in range(1, heads + 1) if heads % count == 0]
        kinds = [*(fields.get("layer_types") or ["sliding_attention"] * layers)[:-1], "full_attention"]
        own = st.fixed_dictionaries({}, optional={"head_dim": EVEN, "num_key_value_heads": st.sampled_from(divisors)})
        alike = st.fixed_dictionaries(dict.fromkeys(sorted({*kinds}), own))  # of one type all, or the class refuses
        each = alike.map(lambda of: {str(number): of[kind] for number, kind in enumerate(kinds)})
        fields["num_global_key_value_heads"] = draw(st.sampled_from(divisors))
        if fields.get("layer_types"):
            some(draw, fields, per_layer_config=each)
        else:
            some(draw, fields, sliding_window_pattern=st.integers(1, 4))
        return some(draw, fields, attention_bias=ON)
