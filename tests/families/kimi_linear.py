"""Kimi Linear: DeltaNet with a decay for every channel, latent attention in some layers, experts behind dense ones."""

from hypothesis import strategies as st

from tests.families import _sizes
from tests.families._deltas import FULL, LINEAR
from tests.families._drawing import ON, SMALL, Draw, Fields, latent, some, without
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "kimi_linear", "pad_token_id": 0, "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 67,
    "moe_intermediate_size": 37, "num_local_experts": 15, "n_shared_experts": 2, "num_experts_per_tok": 7,
    "first_k_dense_replace": 1, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
    "n_group": 3, "topk_group": 2, "latent_attention": "expanded", "linear_conv_kernel_dim": 5, "linear_head_dim": 12,
    "linear_num_heads": 3, "layer_types": [LINEAR, FULL, LINEAR, LINEAR],
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


def sized(of: Distinct) -> Sized:
    """Latent attention in all layers, or DeltaNet in all, by turns."""
    config, sizes = _sizes.sized_latent(of, ranked=False)
    config = {**without(config, "n_routed_experts"), "num_local_experts": config["n_routed_experts"]}
    if not of.seed % 2:
        return {**config, "layer_types": [FULL] * of.L}, sizes
    Kd, Hk, Kc = of.K, of.G, of.P
    sizes = {letter: size for letter, size in sizes.items() if letter not in ("N", "R", "Hp", "Hr", "Hv", "Rs", "Hq")}
    sizes |= {
        "Kd": Kd,
        "Gd": 1,
        "Nd": Kd,
        "Hk": Hk,
        "Hv": Hk,
        "Rd": Hk,
        "Kc": Kc,
        "Dc": 3 * Kd * Hk,
        "Pc": 64,
        "Qc": 64,
    }
    sizes |= {"Nc": -(-of.T // 64)}
    config |= {"linear_num_heads": Kd, "linear_head_dim": Hk, "linear_conv_kernel_dim": Kc}
    return {**config, "layer_types": [LINEAR] * of.L, "latent_attention": "auto"}, sizes
