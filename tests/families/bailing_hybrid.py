"""Ling 3.0: DeltaNet with a decay for every channel, gated latent attention, experts behind dense layers."""

from hypothesis import strategies as st

from tests.families import kimi_linear
from tests.families._deltas import FULL, LINEAR
from tests.families._drawing import ON, Draw, Fields, latent, some, without
from tests.families._sizes import Distinct, Sized

OWN = ("linear_conv_kernel_dim", "linear_head_dim", "linear_num_heads")
TINY = {
    **without(kimi_linear.TINY, *OWN),
    "model_type": "bailing_hybrid", "vocab_size": 151, "head_dim": 13, "short_conv_kernel_size": 5,
}  # fmt: skip
DENSE = {**TINY, "first_k_dense_replace": 4}  # the class weighs experts by sigmoids
LOGITS = {"of dense layers": DENSE, "of decays without a bound": {**DENSE, "kda_safe_gate": False}}
REQUIRED = {"vocab_size": 37, "num_hidden_layers": 6, "pad_token_id": 0}
SILENT = {"mtp_loss_scaling_factor": 0.3}


def drawn(draw: Draw) -> Fields:
    fields = latent(draw, groups := draw(st.integers(1, 3)))
    fields = without(fields, "n_routed_experts", "tie_word_embeddings", "q_lora_rank", "attention_bias")
    fields |= {"num_local_experts": groups * draw(st.integers(2, 4)), "n_shared_experts": draw(st.integers(1, 3))}
    fields |= {"num_experts_per_tok": draw(st.integers(1, fields["num_local_experts"])), "pad_token_id": 0}
    layers = fields["num_hidden_layers"]
    fields |= {"head_dim": draw(st.integers(1, 6)), "layer_group_size": draw(st.integers(1, layers))}
    if draw(ON):
        kinds = draw(st.lists(st.sampled_from([LINEAR, FULL]), min_size=layers, max_size=layers))
        kinds[draw(st.integers(0, layers - 1))] = FULL
        fields["layer_types"] = kinds
    return some(draw, fields, short_conv_kernel_size=st.integers(1, 9), kda_safe_gate=ON)


def sized(of: Distinct) -> Sized:
    """Latent attention in all layers, or DeltaNet in all, by turns."""
    config, sizes = kimi_linear.sized(of)
    config = without(config, *OWN, "attention_bias")
    if not of.seed % 2:
        return config, sizes
    return (
        {**config, "num_attention_heads": of.K, "num_key_value_heads": of.K, "head_dim": of.G}
        | {"short_conv_kernel_size": of.P},
        without(sizes, "Rd"),
    )
