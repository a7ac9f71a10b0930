from tests.families._configs import ABSENT, GROUPED, family, of_dense_layers
from tests.families.deepseek import KIMI_LINEAR

# fmt: off
family("bailing_moe", GROUPED, num_hidden_layers=3, head_dim=20, vocab_size=353, max_position_embeddings=103,
    use_qkv_bias=True, use_qk_norm=True, moe_intermediate_size=37, num_experts=7, num_shared_experts=2,
    num_experts_per_tok=4, partial_rotary_factor=0.5, RUN_BY="Glm4Moe", LOGITS=of_dense_layers(first_k_dense_replace=3),
    SILENT={"moe_shared_expert_intermediate_size": 37})
BAILING_MOE_LINEAR = family("bailing_moe_linear", GROUPED, vocab_size=103, hidden_size=50, num_hidden_layers=4,
    head_dim=32, intermediate_size=37, max_position_embeddings=59, layer_group_size=1, group_norm_size=3,
    moe_intermediate_size=19, num_experts=7, num_experts_per_tok=4, num_shared_experts=2, RUN_BY="Glm4Moe",
    VARIANTS={
        "with lightning attention": {"layer_group_size": 3},
        "with biases": {
            "layer_group_size": 3, "use_qkv_bias": True, "use_bias": True, "use_qk_norm": False,
            "tie_word_embeddings": True,
        },
    }, LOGITS=of_dense_layers(first_k_dense_replace=4), REQUIRED={"num_hidden_layers": 2, "layer_group_size": 1},
    SILENT={"num_nextn_predict_layers": 1})
family("bailing_moe_v2_5", BAILING_MOE_LINEAR, kv_lora_rank=14, q_lora_rank=22, qk_nope_head_dim=8, qk_rope_head_dim=4,
    v_head_dim=10, n_group=1, topk_group=1, latent_attention="expanded", RUN_BY="DeepseekV3",
    VARIANTS={
        "with lightning attention": {"layer_group_size": 3},
        "queries without a latent": {"layer_group_size": 3, "q_lora_rank": None, "use_qkv_bias": True},
    }, LOGITS=of_dense_layers(first_k_dense_replace=4))
family("bailing_hybrid", KIMI_LINEAR, vocab_size=151, head_dim=13, short_conv_kernel_size=5,
    linear_conv_kernel_dim=ABSENT, linear_head_dim=ABSENT, linear_num_heads=ABSENT,
    LOGITS={
        "": None,
        "of dense layers": {"first_k_dense_replace": 4},
        "of decays without a bound": {"first_k_dense_replace": 4, "kda_safe_gate": False},
    }, SILENT={"mtp_loss_scaling_factor": 0.3})
