from tests.families._configs import ABSENT, GROUPED, family, of_dense_layers


def _layer(group: int | None, times: float | None) -> dict[str, dict[str, object]]:
    off: dict[str, object] = {"window_length": None, "replace_with_linear": False}  # as in published files
    attention = {"n_heads_in_group": group, "no_op": group is None, **off}
    return {"attention": attention, "ffn": {"ffn_mult": times, "no_op": times is None, "sparsify": None}}


# fmt: off
family("nemotron", GROUPED, head_dim=20, vocab_size=337, max_position_embeddings=93, attention_bias=True, mlp_bias=True,
    COMPARED={"odd heads": {"head_dim": 9}}, LOGITS={"without biases": {"attention_bias": False, "mlp_bias": False}},
    REQUIRED={"num_hidden_layers": 2, "num_key_value_heads": 8})
family("nemotron-nas", vocab_size=461, hidden_size=96, num_hidden_layers=5, num_attention_heads=8,
    max_position_embeddings=47, intermediate_size=None, num_key_value_heads=None,
    block_configs=[_layer(4, 2.5), _layer(None, 5.25), _layer(None, None), _layer(2, None), _layer(4, 2.5)],
    VARIANTS={"biases": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}}, LOGITS=None,
    SILENT={"pretraining_tp": 1})
family("nemotron_h", GROUPED, vocab_size=211, hybrid_override_pattern="M-*EM", head_dim=20, max_position_embeddings=103,
    mamba_num_heads=6, mamba_head_dim=14, n_groups=2, ssm_state_size=5, conv_kernel=8, chunk_size=12, use_bias=True,
    mlp_bias=True, time_step_min=1e-09, n_routed_experts=10, num_experts_per_tok=4, moe_intermediate_size=37,
    moe_latent_size=31, moe_shared_expert_intermediate_size=29, num_hidden_layers=ABSENT,
    VARIANTS={"moe without a latent": {"mlp_bias": False, "moe_latent_size": None}},
    LOGITS=of_dense_layers(hybrid_override_pattern="M-*M"), REQUIRED={"hybrid_override_pattern": "M*-E"})
