"""Ling 3.0: DeltaNet with a decay for every channel, gated latent attention in some layers, experts."""

from hypothesis import strategies as st

from tests.families import _sizes
from tests.families._deltas import FULL, LINEAR
from tests.families._drawing import ON, SMALL, Draw, Fields, latent, some, without
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "bailing_hybrid", "pad_token_id": 0, "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 67,
    "moe_intermediate_size": 37, "num_local_experts": 15, "n_shared_experts": 2, "num_experts_per_tok": 7,
    "first_k_dense_replace": 1, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
    "n_group": 3, "topk_group": 2, "latent_attention": "expanded", "short_conv_kernel_size": 5, "head_dim": 12,
    "layer_types": [LINEAR, FULL, LINEAR, LINEAR],
}  # fmt: skip
DENSE = {**TINY, "first_k_dense_replace": 4}  # the class weighs experts by sigmoids
LOGITS = {"of dense layers": DENSE, "of decays without a bound": {**DENSE, "kda_safe_gate": False}}
REQUIRED = {"vocab_size": 37, "num_hidden_layers": 6, "pad_token_id": 0}


def drawn(draw: Draw) -> Fields:
    """Which layers attend by a list, or every so many."""
    fields = without(
        latent(draw, groups := draw(st.integers(1, 3))), "n_routed_experts", "tie_word_embeddings", "q_lora_rank"
    )
    fields |= {"num_local_experts": groups * draw(st.integers(2, 4)), "n_shared_experts": draw(st.integers(1, 3))}
    fields |= {"num_experts_per_tok": draw(st.integers(1, fields["num_local_experts"])), "pad_token_id": 0}
    fields |= {"head_dim": draw(SMALL), "short_conv_kernel_size": draw(st.integers(1, 9))}
    layers = fields["num_hidden_layers"]
    networks = st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers)
    some(draw, fields, kda_safe_gate=ON, mlp_layer_types=st.none() | networks)
    if draw(ON):
        return {**fields, "layer_group_size": draw(st.integers(1, layers))}
    attends = draw(st.lists(st.sampled_from(range(layers)), min_size=1, unique=True))
    return {**fields, "layer_types": [FULL if number in attends else LINEAR for number in range(layers)]}


def sized(of: Distinct) -> Sized:
    """Latent attention in all layers, or DeltaNet in all, by turns."""
    config, sizes = _sizes.latent(of, ranked=False)
    config = {**without(config, "n_routed_experts", "q_lora_rank"), "num_local_experts": config["n_routed_experts"]}
    if not of.seed % 2:
        return {**config, "layer_types": [FULL] * of.L}, sizes
    Hk, Kc = of.G, of.P
    sizes = {letter: size for letter, size in sizes.items() if letter not in ("N", "R", "Hp", "Hr", "Hv", "Rs", "Hq")}
    sizes |= {"Kd": of.K, "Gd": 1, "Nd": of.K, "Hk": Hk, "Hv": Hk, "Kc": Kc, "Dc": 3 * of.K * Hk, "Pc": 64, "Qc": 64}
    config |= {"head_dim": Hk, "short_conv_kernel_size": Kc, "layer_types": [LINEAR] * of.L}
    return {**config, "latent_attention": "auto"}, {**sizes, "Nc": -(-of.T // 64)}
