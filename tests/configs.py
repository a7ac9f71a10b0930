"""Random small configs of every family that a transformers class runs: each optional field present, absent or null.

Only what the class itself accepts: it wants hidden_size divisible by heads even where head_dim is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import strategies as st

Draw: TypeAlias = st.DrawFn
Fields: TypeAlias = dict[str, Any]

SMALL = st.integers(1, 6)
EVEN = SMALL.map(lambda half: 2 * half)
VOCAB = st.integers(7, 40)
WINDOW = st.integers(2, 9)
"""Smaller and larger than the contexts that are asked for."""
ON = st.booleans()


@st.composite
def configs(draw: Draw, family: str) -> Fields:
    """A valid config of the family."""
    return {"model_type": family, **FAMILIES[family](draw)}


def some(draw: Draw, fields: Fields, **optional: st.SearchStrategy[Any]) -> Fields:
    """The fields, and each optional one or not."""
    for name, values in optional.items():
        if draw(ON):
            fields[name] = draw(values)
    return fields


def llama_like(draw: Draw, *, null_kv: bool = True, head_dim: bool = True) -> Fields:
    """What Llama's relatives share. `null_kv`: the class takes null for as many key heads as query heads."""
    heads = draw(SMALL) * (kv := draw(SMALL))
    fields = {
        "hidden_size": heads * draw(EVEN),
        "num_hidden_layers": draw(st.integers(1, 4)),
        "num_attention_heads": heads,
        "vocab_size": draw(VOCAB),
        "intermediate_size": draw(st.integers(1, 40)),
        "num_key_value_heads": None if null_kv and draw(ON) else kv,
    }
    some(draw, fields, tie_word_embeddings=ON)
    return some(draw, fields, head_dim=EVEN) if head_dim else fields


def layer_types(draw: Draw, fields: Fields) -> Fields:
    """A list that says which layers have a window, any mixture, or none."""
    kinds = st.sampled_from(["full_attention", "sliding_attention"])
    layers = fields["num_hidden_layers"]
    return some(draw, fields, layer_types=st.none() | st.lists(kinds, min_size=layers, max_size=layers))


def experts(draw: Draw, name: str) -> Fields:
    """How many experts there are under this name, and how many each token is sent to."""
    count = draw(SMALL)
    return {name: count, "num_experts_per_tok": draw(st.integers(1, count))}


def gpt2(draw: Draw) -> Fields:
    heads = draw(SMALL) * draw(SMALL)
    fields = {"n_embd": heads * draw(EVEN), "n_layer": draw(st.integers(1, 3)), "n_head": heads}
    fields |= {"vocab_size": draw(VOCAB), "n_positions": draw(st.integers(20, 40))}
    return some(draw, fields, n_inner=st.none() | st.integers(1, 40), tie_word_embeddings=ON)


def llama(draw: Draw) -> Fields:
    return some(draw, llama_like(draw), attention_bias=ON, mlp_bias=ON, head_dim=st.none() | EVEN)


def qwen_windows(draw: Draw, fields: Fields, *, listed: bool = True) -> Fields:
    """The switch, the window and the first layer that has one; a list of layers only where there is a window."""
    if not draw(ON):
        return some(draw, fields, sliding_window=st.none() | WINDOW, max_window_layers=st.integers(0, 4))
    fields |= {"use_sliding_window": draw(ON), "sliding_window": draw(WINDOW)}
    some(draw, fields, max_window_layers=st.integers(0, 5))
    return layer_types(draw, fields) if listed and fields["use_sliding_window"] else fields


def qwen2(draw: Draw) -> Fields:
    return qwen_windows(draw, llama_like(draw))


def qwen3(draw: Draw) -> Fields:
    return qwen_windows(draw, some(draw, llama_like(draw), attention_bias=ON))


def gemma(draw: Draw) -> Fields:
    return some(draw, llama_like(draw, null_kv=False), attention_bias=ON)


def mistral(draw: Draw) -> Fields:
    return some(draw, llama_like(draw, null_kv=False), sliding_window=st.none() | WINDOW)


def mixtral(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | experts(draw, "num_local_experts")
    return some(draw, fields, sliding_window=st.none() | WINDOW)


def mixed_layers(draw: Draw) -> Fields:
    """Which layers have experts."""
    optional = {"decoder_sparse_step": st.integers(1, 3), "mlp_only_layers": st.none() | st.lists(st.integers(0, 4))}
    return some(draw, {"moe_intermediate_size": draw(SMALL), **experts(draw, "num_experts")}, **optional)


def qwen2_moe(draw: Draw) -> Fields:
    fields = qwen_windows(draw, llama_like(draw, null_kv=False)) | mixed_layers(draw)
    return some(draw, {**fields, "shared_expert_intermediate_size": draw(SMALL)}, qkv_bias=ON)


def qwen3_moe(draw: Draw) -> Fields:
    fields = qwen_windows(draw, llama_like(draw, null_kv=False), listed=False) | mixed_layers(draw)
    return some(draw, fields, attention_bias=ON)


def gemma2(draw: Draw) -> Fields:
    caps = {name: st.none() | st.just(30.0) for name in ("final_logit_softcapping", "attn_logit_softcapping")}
    return some(draw, layer_types(draw, gemma(draw) | {"sliding_window": draw(WINDOW)}), **caps)


def gemma3_text(draw: Draw) -> Fields:
    return some(draw, gemma2(draw), sliding_window_pattern=st.integers(1, 4))


def phi(draw: Draw) -> Fields:
    fields = llama_like(draw, head_dim=False)
    parts = 2 if draw(ON) else 1  # what of a head is turned has to be even
    fields["hidden_size"] *= parts
    fields["partial_rotary_factor"] = 1 / parts
    return some(draw, fields, qk_layernorm=ON)


def phi3(draw: Draw) -> Fields:
    fields = {**llama_like(draw), "pad_token_id": 0}  # whose default is past a small vocabulary
    return some(draw, fields, sliding_window=st.none() | WINDOW)


def deepseek(draw: Draw, groups: int) -> Fields:
    """Latent attention with and without one for queries; experts in `groups` of at least two."""
    fields = llama_like(draw, null_kv=False, head_dim=False)
    count = groups * draw(st.integers(2, 4))
    fields |= {
        "num_key_value_heads": fields["num_attention_heads"],
        "q_lora_rank": draw(st.none() | SMALL),
        "kv_lora_rank": draw(SMALL),
        "qk_nope_head_dim": draw(SMALL),
        "qk_rope_head_dim": draw(EVEN),
        "v_head_dim": draw(SMALL),
        "moe_intermediate_size": draw(SMALL),
        "n_routed_experts": count,
        "num_experts_per_tok": draw(st.integers(1, count)),
        "n_shared_experts": draw(st.integers(0, 3)),
        "first_k_dense_replace": draw(st.integers(0, fields["num_hidden_layers"])),
        "n_group": groups,
        "topk_group": draw(st.integers(1, groups)),
    }
    return some(draw, fields, attention_bias=ON)


def deepseek_v2(draw: Draw) -> Fields:
    fields = deepseek(draw, 1)
    fields |= {name: 2 * fields[name] for name in ("kv_lora_rank", "qk_nope_head_dim")}  # it turns pairs in place
    return some(draw, fields, mlp_bias=ON) if fields["n_shared_experts"] else fields


def deepseek_v3(draw: Draw) -> Fields:
    return deepseek(draw, draw(st.integers(1, 3)))


def gpt_oss(draw: Draw) -> Fields:
    fields = llama_like(draw, null_kv=False) | experts(draw, "num_local_experts")
    return some(draw, layer_types(draw, fields | {"sliding_window": draw(WINDOW)}), attention_bias=ON)


def of_whole_heads(draw: Draw, size: st.SearchStrategy[int] = SMALL) -> Fields:
    """Sizes of the families whose heads share the hidden size, and each have their own keys."""
    heads = draw(st.integers(1, 12))
    sizes = {"hidden_size": heads * draw(size), "num_hidden_layers": draw(st.integers(1, 3))}
    return some(draw, {**sizes, "num_attention_heads": heads, "vocab_size": draw(VOCAB)}, tie_word_embeddings=ON)


def gpt_neox(draw: Draw) -> Fields:
    share = draw(st.sampled_from([0.25, 0.5, 1.0]))
    fields = of_whole_heads(draw, EVEN.map(lambda turned: int(turned / share)))
    fields |= {"intermediate_size": draw(st.integers(1, 40))}
    if share != 0.25:  # which is the class's own
        fields["rotary_pct"] = share
    return some(draw, fields, attention_bias=ON, use_parallel_residual=ON)


def falcon(draw: Draw) -> Fields:
    """40B's layout with any number of key heads, or 7B's and 1B's."""
    group, kv = draw(SMALL), draw(SMALL)
    heads, alibi = group * kv, draw(ON)
    fields = {"hidden_size": heads * draw(EVEN), "num_attention_heads": heads, "alibi": alibi}
    fields |= {"num_hidden_layers": draw(st.integers(1, 3)), "vocab_size": draw(VOCAB)}
    some(draw, fields, bias=ON, tie_word_embeddings=ON, ffn_hidden_size=st.integers(1, 40), multi_query=ON)
    if draw(ON):
        fields["new_decoder_architecture"] = True
        norms = st.none() | st.integers(1, 2)
        return some(draw, fields, num_kv_heads=st.none() | st.just(kv), num_ln_in_parallel_attn=norms)
    some(draw, fields, parallel_attn=ON, new_decoder_architecture=st.just(False))
    # The 7B's file says a number of key heads and has one.
    return some(draw, fields, num_kv_heads=st.just(heads)) if fields.get("multi_query", True) else fields


def opt(draw: Draw) -> Fields:
    fields = of_whole_heads(draw) | {"ffn_dim": draw(st.integers(1, 40)), "max_position_embeddings": 25}
    switches = dict.fromkeys(("do_layer_norm_before", "enable_bias", "_remove_final_layer_norm"), ON)
    width = st.none() | SMALL | st.just(fields["hidden_size"])
    return some(draw, fields, word_embed_proj_dim=width, **switches)


def bloom(draw: Draw) -> Fields:
    fields = of_whole_heads(draw)
    if draw(ON):  # as the published files spell them
        fields |= {"n_layer": fields.pop("num_hidden_layers"), "n_head": fields.pop("num_attention_heads")}
    return fields


def olmo2(draw: Draw) -> Fields:
    return some(draw, llama_like(draw), attention_bias=ON)


def bert(draw: Draw) -> Fields:
    fields = {**of_whole_heads(draw), "intermediate_size": draw(st.integers(1, 40))}
    fields.pop("tie_word_embeddings", None)
    return some(draw, fields, type_vocab_size=SMALL, max_position_embeddings=st.integers(25, 40))


def t5(draw: Draw) -> Fields:
    fields = {"d_model": draw(st.integers(1, 40)), "num_heads": draw(SMALL), "vocab_size": draw(VOCAB)}
    fields |= {"num_layers": draw(st.integers(1, 3)), "d_ff": draw(st.integers(1, 40))}
    networks = st.sampled_from(["relu", "gated-gelu", "gated-silu"])
    some(draw, fields, num_decoder_layers=st.none() | st.integers(1, 4), d_kv=SMALL, feed_forward_proj=networks)
    return some(draw, fields, relative_attention_num_buckets=st.integers(4, 40), tie_word_embeddings=st.just(True))


def bart(draw: Draw) -> Fields:
    heads, own = draw(SMALL), draw(SMALL)
    fields = {"d_model": heads * own * draw(st.integers(1, 4)), "vocab_size": draw(VOCAB), "pad_token_id": 1}
    fields |= {"encoder_layers": draw(st.integers(1, 3)), "decoder_layers": draw(st.integers(1, 3))}
    fields |= {"encoder_attention_heads": heads, "decoder_attention_heads": own, "max_position_embeddings": 40}
    some(draw, fields, encoder_ffn_dim=st.integers(1, 40), decoder_ffn_dim=st.integers(1, 40))
    return some(draw, fields, scale_embedding=ON, tie_word_embeddings=st.just(True))


def marian(draw: Draw) -> Fields:
    fields = bart(draw) | {"decoder_start_token_id": 0}
    fields["d_model"] *= 2  # sines and cosines, of which there are as many
    if draw(ON):
        return fields
    own = draw(st.none() | st.integers(7, 40))
    return {**fields, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": own}


FAMILIES: dict[str, Callable[[Draw], Fields]] = {
    made.__name__: made
    for made in (
        *(gpt2, llama, qwen2, qwen3, gemma, mistral, mixtral, qwen2_moe, qwen3_moe, gemma2, gemma3_text, phi, phi3),
        *(deepseek_v2, deepseek_v3, gpt_oss, gpt_neox, falcon, opt, bloom, olmo2),
        *(bert, t5, bart, marian),
    )
}
