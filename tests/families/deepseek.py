"""Test configs of the deepseek lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._deltas import FULL, LINEAR
from tests.families._drawing import (
    EVEN,
    LAYERS,
    ON,
    SMALL,
    WIDTH,
    WINDOW,
    Draw,
    Fields,
    in_forms,
    latent,
    latent_forms,
    layer_types,
    llama_like,
    some,
    without,
)
from tests.families.mistral import Ministral3


class DeepseekV2:
    TINY = {
        "model_type": "deepseek_v2", "vocab_size": 139, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 65, "moe_intermediate_size": 37,
        "n_routed_experts": 7, "n_shared_experts": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
        "q_lora_rank": None, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
        "n_group": 1, "topk_group": 1, "attention_bias": True, "mlp_bias": True, "latent_attention": "expanded",
    }  # fmt: skip
    VARIANTS = {
        "absorbed": {**TINY, "q_lora_rank": 22, "latent_attention": "absorbed"},
        "unpacked": {**TINY, "latent_attention": "unpacked"},
    }
    # The reference's routing is fixed: dense layers only, or every expert for every token.
    LOGITS = {
        **latent_forms(TINY),
        "of every expert": {**TINY, "num_experts_per_tok": 7, "latent_attention": "absorbed"},
    }
    REQUIRED = {**LAYERS, "num_attention_heads": 4, "num_experts_per_tok": 3}

    def drawn(draw: Draw) -> Fields:
        fields = latent(draw, 1)
        fields |= {name: 2 * fields[name] for name in ("kv_lora_rank", "qk_nope_head_dim")}  # it turns pairs in place
        return some(draw, fields, mlp_bias=ON) if fields["n_shared_experts"] else fields


class DeepseekV3:
    TINY = {
        "model_type": "deepseek_v3", "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 67,
        "moe_intermediate_size": 37, "n_routed_experts": 15, "n_shared_experts": 2, "num_experts_per_tok": 3,
        "first_k_dense_replace": 1, "q_lora_rank": 22, "kv_lora_rank": 14, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4, "v_head_dim": 10, "n_group": 3, "topk_group": 2, "latent_attention": "expanded",
    }  # fmt: skip
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    LOGITS = latent_forms(TINY)  # dense layers only: the class weighs experts by sigmoids
    REQUIRED = {**LAYERS, "num_attention_heads": 128}

    def drawn(draw: Draw) -> Fields:
        return latent(draw, draw(st.integers(1, 3)))


class DeepseekV32:
    TINY = {
        **DeepseekV3.TINY, "model_type": "deepseek_v32", "vocab_size": 157, "index_topk": 5, "index_n_heads": 19,
        "index_head_dim": 16, "n_routed_experts": 21, "qk_rope_head_dim": 4,
    }  # fmt: skip
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    # Dense layers only: the class weighs experts by sigmoids.
    LOGITS = in_forms({**TINY, "first_k_dense_replace": 3}, "expanded", "absorbed", "unpacked")

    def drawn(draw: Draw) -> Fields:
        fields = latent(draw, draw(st.integers(1, 3)))
        fields |= {"q_lora_rank": draw(SMALL), "n_shared_experts": max(1, fields["n_shared_experts"])}
        fields |= {"index_topk": draw(SMALL), "index_n_heads": draw(SMALL)}
        fields["index_head_dim"] = fields["qk_rope_head_dim"] + draw(SMALL)
        layers = fields["num_hidden_layers"]
        listed = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
        return some(draw, fields, mlp_layer_types=st.none() | listed)


class KimiK2(DeepseekV3):
    TINY = {**DeepseekV3.TINY, "model_type": "kimi_k2", "vocab_size": 233, "n_group": 1, "topk_group": 1}
    LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids

    def drawn(draw: Draw) -> Fields:
        return DeepseekV3.drawn(draw)


class KimiLinear:
    TINY = {
        "model_type": "kimi_linear", "pad_token_id": 0, "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 67,
        "moe_intermediate_size": 37, "num_local_experts": 15, "n_shared_experts": 2, "num_experts_per_tok": 7,
        "first_k_dense_replace": 1, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
        "n_group": 3, "topk_group": 2, "latent_attention": "expanded", "linear_conv_kernel_dim": 5,
        "linear_head_dim": 12, "linear_num_heads": 3, "layer_types": [LINEAR, FULL, LINEAR, LINEAR],
    }  # fmt: skip
    LOGITS = {"of dense layers": {**TINY, "first_k_dense_replace": 4}}  # the class weighs experts by sigmoids
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 6, "pad_token_id": 0}

    def drawn(draw: Draw) -> Fields:
        """DeltaNet's sizes and layers in fields of the class, or as published configs say them."""
        fields = without(latent(draw, groups := draw(st.integers(1, 3))), "n_routed_experts", "tie_word_embeddings")
        fields |= {"num_local_experts": groups * draw(st.integers(2, 4)), "n_shared_experts": draw(st.integers(1, 3))}
        fields |= {"num_experts_per_tok": draw(st.integers(1, fields["num_local_experts"])), "pad_token_id": 0}
        layers = fields["num_hidden_layers"]
        sizes = {"head_dim": draw(SMALL), "num_heads": draw(SMALL), "short_conv_kernel_size": draw(st.integers(1, 9))}
        attends = draw(st.lists(st.sampled_from(range(1, layers + 1)), min_size=1, unique=True))
        if draw(ON):
            kda = [number for number in range(1, layers + 1) if number not in attends]
            return {**fields, "linear_attn_config": {**sizes, "full_attn_layers": attends, "kda_layers": kda}}
        fields |= {"linear_head_dim": sizes["head_dim"], "linear_num_heads": sizes["num_heads"]}
        fields |= {"layer_types": [FULL if number + 1 in attends else LINEAR for number in range(layers)]}
        return some(draw, fields, linear_conv_kernel_dim=st.integers(1, 9))


class Youtu:
    TINY = {
        "model_type": "youtu", "vocab_size": 229, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 51, "q_lora_rank": 22,
        "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10, "attention_bias": True,
        "latent_attention": "expanded",
    }  # fmt: skip
    ROUTED = (
        "moe_intermediate_size n_routed_experts num_experts_per_tok n_shared_experts first_k_dense_replace n_group"
        " topk_group"
    ).split()
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    LOGITS = latent_forms(TINY, {})

    def drawn(draw: Draw) -> Fields:
        return without(latent(draw, 1), *Youtu.ROUTED)


class AXK2:
    TINY = {
        **DeepseekV32.TINY, "model_type": "axk2", "vocab_size": 541, "gated_norm_rank": 25, "first_k_dense_replace": 0,
        "mlp_layer_types": ["dense", "sparse", "dense"],
    }  # fmt: skip
    # Dense layers only: the class weighs experts by sigmoids.
    LOGITS = in_forms({**TINY, "mlp_layer_types": ["dense"] * 3}, "expanded", "absorbed")

    def drawn(draw: Draw) -> Fields:
        fields = DeepseekV32.drawn(draw) | {"gated_norm_rank": draw(SMALL)}
        if draw(st.booleans()):
            fields |= {"n_group": None, "topk_group": None}
        return some(draw, fields, moe_layer_freq=st.integers(1, 3))


class Dots1:
    TINY = {
        "model_type": "dots1", "vocab_size": 167, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 53, "attention_bias": True,
        "moe_intermediate_size": 37, "n_routed_experts": 10, "n_shared_experts": 3, "num_experts_per_tok": 4,
        "first_k_dense_replace": 1, "sliding_window": 5, "max_window_layers": 2,
    }  # fmt: skip
    LOGITS = {"": {**TINY, "first_k_dense_replace": 4}}  # dense layers only: the class weighs experts by sigmoids
    REQUIRED = {"num_hidden_layers": 2, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2}

    def drawn(draw: Draw) -> Fields:
        fields = llama_like(draw, head_dim=False)
        count = draw(st.integers(2, 6))  # of a group the class looks at two
        fields |= {"n_routed_experts": count, "num_experts_per_tok": draw(st.integers(1, count))}
        fields |= {"moe_intermediate_size": draw(SMALL), "n_shared_experts": draw(st.integers(1, 3))}
        some(
            draw,
            fields,
            attention_bias=ON,
            first_k_dense_replace=st.integers(0, 5),
            max_window_layers=st.integers(0, 5),
        )
        if draw(ON):
            return {**fields, "sliding_window": None}
        return layer_types(draw, {**fields, "sliding_window": draw(WINDOW)})


class Dots3Note:
    INDEXED, SLIDING = "indexed_attention", "sliding_attention"
    TINY = {
        **without(DeepseekV32.TINY, "first_k_dense_replace"), "model_type": "dots3_note_text", "vocab_size": 547,
        "pad_token_id": 0,
        "shared_experts_intermediate_size": 43, "layer_types": [INDEXED, SLIDING, SLIDING], "sliding_window": 8,
        "mlp_layer_types": ["dense", "sparse", "dense"], "swa_num_attention_heads": 7, "swa_num_key_value_heads": 7,
        "swa_q_lora_rank": 26, "swa_kv_lora_rank": 17, "swa_head_dim": 39, "swa_qk_nope_head_dim": 29,
        "swa_v_head_dim": 24,
    }  # fmt: skip
    VARIANTS = {
        "windowed, absorbed": {**TINY, "latent_attention": "absorbed"},
        "unpacked": {**TINY, "latent_attention": "unpacked"},
    }
    DENSE = {**TINY, "mlp_layer_types": ["dense"] * 3}  # the class weighs experts by sigmoids
    LOGITS = {"": DENSE, "absorbed": {**DENSE, "latent_attention": "absorbed", "use_dsa": False}}
    SILENT = {"norm_topk_prob": False}

    def drawn(draw: Draw) -> Fields:
        fields = DeepseekV32.drawn(draw)
        groups, heads = fields["n_group"], draw(SMALL)
        fields["pad_token_id"] = 0
        fields |= {"topk_group": min(fields["topk_group"], groups), "shared_experts_intermediate_size": draw(SMALL)}
        turned, plain = draw(EVEN), draw(SMALL)
        sizes = {"num_attention_heads": heads, "num_key_value_heads": heads, "q_lora_rank": draw(SMALL)}
        sizes |= {"kv_lora_rank": draw(SMALL), "qk_nope_head_dim": plain, "v_head_dim": draw(SMALL)}
        sizes |= {"head_dim": turned + plain, "qk_rope_head_dim": turned}
        layers = fields["num_hidden_layers"]
        kinds = draw(
            st.lists(st.sampled_from([Dots3Note.INDEXED, Dots3Note.SLIDING]), min_size=layers, max_size=layers)
        )
        fields["sliding_window"] = draw(WINDOW)
        if draw(ON):
            fields |= {f"swa_{name}": size for name, size in sizes.items()}
            some(draw, fields, use_dsa=ON, layer_types=st.none() | st.just(kinds), use_sliding_window=ON)
        else:
            fields |= {"layer_types": [draw(st.sampled_from([kind, "full_attention"])) for kind in kinds]}
            slides = [str(number) for number, kind in enumerate(fields["layer_types"]) if kind == Dots3Note.SLIDING]
            fields["per_layer_config"] = dict.fromkeys(slides, sizes)
        return some(draw, fields, moe_layer_freq=st.integers(1, 3))


class Mistral4:
    GROWING = {**Ministral3.GROWING, "rope_type": "linear", "factor": 4.0}
    """The class turns a part of a head only where its angles are stretched."""
    TINY = {
        **DeepseekV3.TINY,
        "model_type": "mistral4",
        "vocab_size": 419,
        "pad_token_id": 0,
        "rope_parameters": GROWING,
    }
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    LOGITS = latent_forms(TINY)

    def drawn(draw: Draw) -> Fields:
        return {**DeepseekV3.drawn(draw), "pad_token_id": 0}


class LongcatFlash:
    TINY = {
        "model_type": "longcat_flash", "vocab_size": 153, "hidden_size": 48, "num_layers": 2, "num_attention_heads": 6,
        "ffn_hidden_size": 71, "max_position_embeddings": 67, "q_lora_rank": 22, "kv_lora_rank": 14,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "head_dim": 4, "v_head_dim": 10, "n_routed_experts": 15,
        "moe_topk": 7, "expert_ffn_hidden_size": 37, "zero_expert_num": 0, "latent_attention": "expanded",
    }  # fmt: skip
    VARIANTS = {"with choices that are no experts": {**TINY, "zero_expert_num": 4}}
    LOGITS = {"of all experts": {**TINY, "moe_topk": 15, "routed_scaling_factor": 1.0}}
    REQUIRED = {
        "vocab_size": 37, "hidden_size": 32, "num_layers": 1, "num_attention_heads": 2, "q_lora_rank": 16,
        "intermediate_size": 40, "moe_intermediate_size": 8, "n_routed_experts": 12, "zero_expert_num": 0,
    }  # fmt: skip
    SILENT = {"routed_scaling_factor": 3.0, "num_hidden_layers": 4, "qk_head_dim": 12}

    def drawn(draw: Draw) -> Fields:
        fields = without(latent(draw, 1), "n_shared_experts", "first_k_dense_replace", "n_group", "topk_group")
        fields = without(
            fields, "tie_word_embeddings", "num_hidden_layers", "intermediate_size", "moe_intermediate_size"
        )
        fields |= {"q_lora_rank": draw(SMALL), "num_layers": draw(st.integers(1, 2)), "zero_expert_num": 0}
        fields |= {"ffn_hidden_size": draw(WIDTH), "expert_ffn_hidden_size": draw(SMALL)}
        fields |= {"head_dim": fields["qk_rope_head_dim"], "moe_topk": max(fields.pop("num_experts_per_tok"), 2)}
        return some(draw, fields, routed_scaling_factor=st.just(2.0))


class Glm4MoeLite:
    TINY = {
        **without(DeepseekV3.TINY, "first_k_dense_replace"), "model_type": "glm4_moe_lite", "vocab_size": 151,
        "mlp_layer_types": ["dense", "sparse", "dense"],
    }  # fmt: skip
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    LOGITS = {
        form: {**without(fields, "first_k_dense_replace"), "mlp_layer_types": ["dense"] * 3}
        for form, fields in latent_forms(TINY).items()
    }  # dense layers only: the class weighs experts by sigmoids

    def drawn(draw: Draw) -> Fields:
        fields = without(latent(draw, draw(st.integers(1, 3))), "first_k_dense_replace")
        fields["n_shared_experts"] = max(1, fields["n_shared_experts"])
        layers = fields["num_hidden_layers"]
        listed = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
        return some(draw, fields, mlp_layer_types=st.none() | listed)


class AXK1:
    TINY = {**Glm4MoeLite.TINY, "model_type": "axk1", "vocab_size": 557, "q_lora_rank": 22}
    LOGITS = {
        "of dense layers": {**TINY, "mlp_layer_types": ["dense"] * 3}
    }  # dense layers only: the class weighs experts by sigmoids

    def drawn(draw: Draw) -> Fields:
        fields = Glm4MoeLite.drawn(draw)
        if fields.get("q_lora_rank") is None:
            fields["q_lora_rank"] = draw(st.integers(1, 9))
        return some(draw, fields, first_k_dense_replace=st.integers(0, 4), moe_layer_freq=st.integers(1, 3))


class GlmMoeDsa(DeepseekV32):
    TINY = {
        **DeepseekV32.TINY,
        "model_type": "glm_moe_dsa",
        "vocab_size": 161,
        "indexer_types": ["full", "shared", "full"],
    }
    LOGITS = {"": {**TINY, "first_k_dense_replace": 3}}  # dense layers only: the class weighs experts by sigmoids

    def drawn(draw: Draw) -> Fields:
        fields = DeepseekV32.drawn(draw)
        layers = fields["num_hidden_layers"]
        kinds = st.lists(st.sampled_from(["full", "shared"]), min_size=layers - 1, max_size=layers - 1)
        return some(
            draw,
            fields,
            indexer_types=st.none() | kinds.map(lambda rest: ["full", *rest]),
            index_topk_pattern=st.none() | kinds.map(lambda rest: "F" + "".join(kind[0].upper() for kind in rest)),
            index_topk_freq=st.integers(1, 3),
            index_skip_topk_offset=st.integers(1, 3),
        )


class MistralLarge4:
    UNREAD = ("q_lora_rank", "index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
    TINY = {
        **without(GlmMoeDsa.TINY, *UNREAD), "model_type": "mistral_large4_text", "vocab_size": 163,
        "num_hidden_layers": 5, "indexer_types": ["full", "shared", "full", "shared", "full"], "n_shared_experts": 2,
        "no_rope_layers": [1, 0, 1, 0, 1], "kv_source_layers": [0, 1, 0, 1, 4], "first_k_dense_replace": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }  # fmt: skip
    VARIANTS = in_forms(TINY, "absorbed", "unpacked")
    DENSE = {**TINY, "first_k_dense_replace": 5}
    LOGITS = in_forms(DENSE, "expanded", "absorbed", "unpacked")
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 2}

    def drawn(draw: Draw) -> Fields:
        """Sources as the class accepts them: of layers rotated alike, the last that another layer reads."""
        fields = without(GlmMoeDsa.drawn(draw), *MistralLarge4.UNREAD)
        fields |= {"n_shared_experts": max(1, fields["n_shared_experts"])}
        layers = fields["num_hidden_layers"]
        turned = draw(st.lists(st.integers(0, 1), min_size=layers, max_size=layers))
        sources = [*range(layers)]
        for number in range(1, layers):
            alike = [other for other in sources[:number] if turned[other] == turned[number]]
            if alike and draw(st.booleans()):
                sources[number] = max(alike)
        return some(draw, fields | {"no_rope_layers": turned}, kv_source_layers=st.none() | st.just(sources))


class Glm5Next:
    INDEXED = "indexed_attention"
    TINY = {
        "model_type": "glm5_next_text", "pad_token_id": 0, "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 67,
        "moe_intermediate_size": 37, "n_routed_experts": 15, "n_shared_experts": 2, "num_experts_per_tok": 7,
        "q_lora_rank": 22, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "v_head_dim": 10, "index_topk": 8,
        "index_kpool": 4, "index_n_heads": 19, "index_head_dim": 16, "hc_mult": 13, "hc_sinkhorn_iters": 3,
        "latent_attention": "expanded", "linear_conv_kernel_dim": 5, "linear_head_dim": 12, "linear_num_heads": 4,
        "indexer_types": ["full", "shared", "full", "full"], "layer_types": [INDEXED, INDEXED, LINEAR, INDEXED],
        "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
    }  # fmt: skip
    DENSE = {**TINY, "mlp_layer_types": ["dense"] * 4}  # the class weighs experts by sigmoids
    LOGITS = {"": DENSE, "absorbed": {**DENSE, "latent_attention": "absorbed", "indexer_types": ["full"] * 4}}
    SILENT = {"swiglu_limit": 7.0, "num_nextn_predict_layers": 1, "mhc": True}
    REQUIRED = {"vocab_size": 37, "num_hidden_layers": 4, "pad_token_id": 0}

    def drawn(draw: Draw) -> Fields:
        """DeltaNet's sizes in fields of the class, or as published configs say them; attention in a layer at least."""
        fields = without(GlmMoeDsa.drawn(draw), "first_k_dense_replace", "indexer_types", "index_topk_pattern")
        fields = without(fields, "index_topk_freq", "index_skip_topk_offset", "tie_word_embeddings")
        layers, pool = fields["num_hidden_layers"], draw(st.integers(1, 5))
        fields |= {"qk_rope_head_dim": 0, "pad_token_id": 0, "index_kpool": pool, "index_topk": pool * draw(SMALL)}
        fields |= {"hc_mult": draw(SMALL), "hc_sinkhorn_iters": draw(st.integers(1, 3))}
        kinds = draw(st.lists(st.sampled_from([LINEAR, Glm5Next.INDEXED]), min_size=layers, max_size=layers))
        first = draw(st.integers(0, layers - 1))
        kinds[first] = Glm5Next.INDEXED
        chooses = ["full"]
        for number in range(1, layers):
            may = (kinds[number - 1], chooses[-1]) == (Glm5Next.INDEXED, "full")
            chooses.append(draw(st.sampled_from(["full", "shared"])) if may else "full")
        fields |= {"layer_types": kinds, "indexer_types": chooses}
        sizes = {"head_dim": draw(SMALL), "num_heads": draw(SMALL), "short_conv_kernel_size": draw(st.integers(1, 9))}
        if draw(ON):
            fields |= {"linear_attn_config": sizes}
        else:
            fields |= {"linear_head_dim": sizes["head_dim"], "linear_num_heads": sizes["num_heads"]}
            some(draw, fields, linear_conv_kernel_dim=st.integers(1, 9))
        return some(draw, fields, index_kpool_always_select_tail=ON)
