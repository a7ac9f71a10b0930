"""Random small configs: what several families draw alike.

Only what the class itself accepts: it wants hidden_size divisible by heads even where head_dim is given.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import strategies as st

Draw: TypeAlias = st.DrawFn
Fields: TypeAlias = dict[str, Any]

SMALL = st.integers(1, 6)
EVEN = SMALL.map(lambda half: 2 * half)
WIDTH = st.integers(1, 40)
VOCAB = st.integers(7, 40)
WINDOW = st.integers(2, 9)
"""Smaller and larger than the contexts that are asked for."""
ON = st.booleans()

LAYERS: Fields = {"vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2}
PLAIN: Fields = {**LAYERS, "num_attention_heads": 64}
"""What has no default in most families, and heads that fit the default of the others."""


def without(config: Fields, *names: str) -> Fields:
    """A config less these fields."""
    return {name: value for name, value in config.items() if name not in names}


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
        "intermediate_size": draw(WIDTH),
        "num_key_value_heads": None if null_kv and draw(ON) else kv,
    }
    some(draw, fields, tie_word_embeddings=ON)
    return some(draw, fields, head_dim=EVEN) if head_dim else fields


def of_whole_heads(draw: Draw, size: st.SearchStrategy[int] = SMALL) -> Fields:
    """Sizes of the families whose heads share the hidden size, and each have their own keys."""
    heads = draw(st.integers(1, 12))
    sizes = {"hidden_size": heads * draw(size), "num_hidden_layers": draw(st.integers(1, 3))}
    return some(draw, {**sizes, "num_attention_heads": heads, "vocab_size": draw(VOCAB)}, tie_word_embeddings=ON)


def layer_types(draw: Draw, fields: Fields) -> Fields:
    """A list that says which layers have a window, any mixture, or none."""
    kinds = st.sampled_from(["full_attention", "sliding_attention"])
    layers = fields["num_hidden_layers"]
    return some(draw, fields, layer_types=st.none() | st.lists(kinds, min_size=layers, max_size=layers))


def qwen_windows(draw: Draw, fields: Fields, *, listed: bool = True) -> Fields:
    """The switch, the window and the first layer that has one; a list of layers only where there is a window."""
    if not draw(ON):
        return some(draw, fields, sliding_window=st.none() | WINDOW, max_window_layers=st.integers(0, 4))
    fields |= {"use_sliding_window": draw(ON), "sliding_window": draw(WINDOW)}
    some(draw, fields, max_window_layers=st.integers(0, 5))
    return layer_types(draw, fields) if listed and fields["use_sliding_window"] else fields


def experts(draw: Draw, name: str) -> Fields:
    """How many experts there are under this name, and how many each token is sent to."""
    count = draw(SMALL)
    return {name: count, "num_experts_per_tok": draw(st.integers(1, count))}


def mixed_layers(draw: Draw) -> Fields:
    """Which layers have experts."""
    optional = {"decoder_sparse_step": st.integers(1, 3), "mlp_only_layers": st.none() | st.lists(st.integers(0, 4))}
    return some(draw, {"moe_intermediate_size": draw(SMALL), **experts(draw, "num_experts")}, **optional)


def latent(draw: Draw, groups: int) -> Fields:
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


def bart_like(draw: Draw) -> Fields:
    """An encoder and a decoder, with heads and widths of their own."""
    heads, own = draw(SMALL), draw(SMALL)
    fields = {"d_model": heads * own * draw(st.integers(1, 4)), "vocab_size": draw(VOCAB), "pad_token_id": 1}
    fields |= {"encoder_layers": draw(st.integers(1, 3)), "decoder_layers": draw(st.integers(1, 3))}
    fields |= {"encoder_attention_heads": heads, "decoder_attention_heads": own, "max_position_embeddings": 40}
    some(draw, fields, encoder_ffn_dim=WIDTH, decoder_ffn_dim=WIDTH)
    return some(draw, fields, scale_embedding=ON, tie_word_embeddings=st.just(True))


def in_forms(config: Fields, *forms: str) -> dict[str, Fields]:
    """A config in each of these forms of latent attention."""
    return {form: {**config, "latent_attention": form} for form in forms}


DENSE: Fields = {"first_k_dense_replace": 3}


def latent_forms(tiny: Fields, dense: Fields = DENSE) -> dict[str, Fields]:
    """Dense layers only, of each form of latent attention: with and without a latent for the queries."""
    forms = {
        "expanded": ("expanded", None),
        "absorbed": ("absorbed", None),
        "unpacked": ("unpacked", 22),
        "absorbed with a latent for queries": ("absorbed", 22),
    }
    return {
        name: {**tiny, **dense, "latent_attention": form, "q_lora_rank": rank} for name, (form, rank) in forms.items()
    }
