from tests.families._configs import (
    ABSENT,
    FULL,
    LINEAR,
    SIZES,
    SLIDING,
    family,
    in_forms,
    latent_forms,
    of_dense_layers,
)
from tests.families.mistral import GROWING

# fmt: off
DEEPSEEK_V2 = family("deepseek_v2", SIZES, vocab_size=139, num_hidden_layers=3, max_position_embeddings=65,
    moe_intermediate_size=37, n_routed_experts=7, n_shared_experts=2, num_experts_per_tok=3, first_k_dense_replace=1,
    q_lora_rank=None, kv_lora_rank=14, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=10, n_group=1, topk_group=1,
    attention_bias=True, mlp_bias=True, latent_attention="expanded",
    VARIANTS={
        "absorbed": {"q_lora_rank": 22, "latent_attention": "absorbed"},
        "unpacked": {"latent_attention": "unpacked"},
    },
    LOGITS={
        "": None,
        "expanded": {"first_k_dense_replace": 3},
        "absorbed": {"first_k_dense_replace": 3, "latent_attention": "absorbed"},
        "unpacked": {"first_k_dense_replace": 3, "q_lora_rank": 22, "latent_attention": "unpacked"},
        "absorbed with a latent for queries": {"OF": "absorbed", "q_lora_rank": 22},
        "of every expert": {"num_experts_per_tok": 7, "latent_attention": "absorbed"},
    },
    REQUIRED={
        "vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_experts_per_tok": 3,
    })
DEEPSEEK_V3 = family("deepseek_v3", DEEPSEEK_V2, vocab_size=149, num_key_value_heads=6, max_position_embeddings=67,
    n_routed_experts=15, q_lora_rank=22, n_group=3, topk_group=2, attention_bias=ABSENT, mlp_bias=ABSENT,
    VARIANTS=in_forms("absorbed", "unpacked"), LOGITS=latent_forms(first_k_dense_replace=3),
    REQUIRED={"vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 128})
DEEPSEEK_V32 = family("deepseek_v32", DEEPSEEK_V3.TINY, vocab_size=157, n_routed_experts=21, index_topk=5,
    index_n_heads=19, index_head_dim=16, VARIANTS=in_forms("absorbed", "unpacked"),
    LOGITS={
        "": None,
        "expanded": {"first_k_dense_replace": 3},
        "absorbed": {"first_k_dense_replace": 3, "latent_attention": "absorbed"},
        "unpacked": {"first_k_dense_replace": 3, "latent_attention": "unpacked"},
    })
family("kimi_k2", DEEPSEEK_V3, vocab_size=233, n_group=1, topk_group=1, LOGITS=of_dense_layers(first_k_dense_replace=3))
KIMI_LINEAR = family("kimi_linear", DEEPSEEK_V3, pad_token_id=0, num_hidden_layers=4, num_local_experts=15,
    num_experts_per_tok=7, linear_conv_kernel_dim=5, linear_head_dim=12, linear_num_heads=3,
    layer_types=[LINEAR, FULL, LINEAR, LINEAR], n_routed_experts=ABSENT, q_lora_rank=ABSENT,
    LOGITS={"": None, "of dense layers": {"first_k_dense_replace": 4}},
    REQUIRED={"vocab_size": 37, "num_hidden_layers": 6, "pad_token_id": 0})
family("youtu", SIZES, num_hidden_layers=3, vocab_size=229, num_key_value_heads=6, max_position_embeddings=51,
    q_lora_rank=22, kv_lora_rank=14, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=10, attention_bias=True,
    latent_attention="expanded", VARIANTS=in_forms("absorbed", "unpacked"), LOGITS=latent_forms())
family("axk2", DEEPSEEK_V32, vocab_size=541, first_k_dense_replace=0, gated_norm_rank=25,
    mlp_layer_types=["dense", "sparse", "dense"],
    LOGITS={
        "": None,
        "expanded": {"mlp_layer_types": ["dense"] * 3},
        "absorbed": {"latent_attention": "absorbed", "mlp_layer_types": ["dense"] * 3},
    })
family("dots1", SIZES, vocab_size=167, num_hidden_layers=4, num_key_value_heads=2, max_position_embeddings=53,
    attention_bias=True, moe_intermediate_size=37, n_routed_experts=10, n_shared_experts=3, num_experts_per_tok=4,
    first_k_dense_replace=1, sliding_window=5, max_window_layers=2, LOGITS=of_dense_layers(first_k_dense_replace=4),
    REQUIRED={"num_hidden_layers": 2, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2})
family("dots3_note_text", DEEPSEEK_V32, vocab_size=547, pad_token_id=0, shared_experts_intermediate_size=43,
    layer_types=["indexed_attention", SLIDING, SLIDING], sliding_window=8, mlp_layer_types=["dense", "sparse", "dense"],
    swa_num_attention_heads=7, swa_num_key_value_heads=7, swa_q_lora_rank=26, swa_kv_lora_rank=17, swa_head_dim=39,
    swa_qk_nope_head_dim=29, swa_v_head_dim=24, first_k_dense_replace=ABSENT,
    VARIANTS={"windowed, absorbed": {"latent_attention": "absorbed"}, "unpacked": {"latent_attention": "unpacked"}},
    LOGITS={
        "": {"mlp_layer_types": ["dense"] * 3},
        "absorbed": {"latent_attention": "absorbed", "use_dsa": False},
    }, SILENT={"norm_topk_prob": False})
# The class rotates a part of a head only with scaled RoPE.
family("mistral4", DEEPSEEK_V3.TINY, vocab_size=419, pad_token_id=0,
    rope_parameters={**GROWING, "rope_type": "linear", "factor": 4.0},
    VARIANTS=in_forms("absorbed", "unpacked"), LOGITS=latent_forms(first_k_dense_replace=3))
family("longcat_flash", vocab_size=153, hidden_size=48, num_layers=2, num_attention_heads=6, ffn_hidden_size=71,
    max_position_embeddings=67, q_lora_rank=22, kv_lora_rank=14, qk_nope_head_dim=8, qk_rope_head_dim=4, head_dim=4,
    v_head_dim=10, n_routed_experts=15, moe_topk=7, expert_ffn_hidden_size=37, zero_expert_num=0,
    latent_attention="expanded", VARIANTS={"with choices that are no experts": {"zero_expert_num": 4}},
    LOGITS={"": None, "of all experts": {"moe_topk": 15, "routed_scaling_factor": 1.0}},
    REQUIRED={
        "vocab_size": 37, "hidden_size": 32, "num_layers": 1, "num_attention_heads": 2, "q_lora_rank": 16,
        "intermediate_size": 40, "moe_intermediate_size": 8, "n_routed_experts": 12, "zero_expert_num": 0,
    }, SILENT={"num_hidden_layers": 4, "qk_head_dim": 12})
GLM4_MOE_LITE = family("glm4_moe_lite", DEEPSEEK_V3.TINY, vocab_size=151, mlp_layer_types=["dense", "sparse", "dense"],
    first_k_dense_replace=ABSENT, VARIANTS=in_forms("absorbed", "unpacked"),
    LOGITS=latent_forms(mlp_layer_types=["dense"] * 3))
AXK1 = family("axk1", GLM4_MOE_LITE, vocab_size=557,
    LOGITS={"": None, "of dense layers": {"mlp_layer_types": ["dense"] * 3}})
GLM_MOE_DSA = family("glm_moe_dsa", DEEPSEEK_V32, vocab_size=161, indexer_types=["full", "shared", "full"],
    LOGITS=of_dense_layers(first_k_dense_replace=3))
family("mistral_large4_text", GLM_MOE_DSA, vocab_size=163, num_hidden_layers=5, first_k_dense_replace=2,
    indexer_types=["full", "shared", "full", "shared", "full"], no_rope_layers=[1, 0, 1, 0, 1],
    kv_source_layers=[0, 1, 0, 1, 4], rope_parameters={"rope_type": "default", "rope_theta": 1e4}, q_lora_rank=ABSENT,
    VARIANTS=in_forms("absorbed", "unpacked"),
    LOGITS={
        "": None,
        "expanded": {"first_k_dense_replace": 5},
        "absorbed": {"first_k_dense_replace": 5, "latent_attention": "absorbed"},
        "unpacked": {"first_k_dense_replace": 5, "latent_attention": "unpacked"},
    }, REQUIRED={"vocab_size": 37, "num_hidden_layers": 2})
family("glm5_next_text", AXK1, num_hidden_layers=4, pad_token_id=0, vocab_size=149, num_experts_per_tok=7, index_topk=8,
    index_kpool=4, index_n_heads=19, index_head_dim=16, hc_mult=13, hc_sinkhorn_iters=3, linear_conv_kernel_dim=5,
    linear_head_dim=12, linear_num_heads=4, indexer_types=["full", "shared", "full", "full"],
    layer_types=["indexed_attention", "indexed_attention", LINEAR, "indexed_attention"],
    mlp_layer_types=["dense", "sparse", "sparse", "dense"], qk_rope_head_dim=ABSENT, n_group=ABSENT, topk_group=ABSENT,
    LOGITS={
        "": {"mlp_layer_types": ["dense"] * 4},
        "absorbed": {"latent_attention": "absorbed", "indexer_types": ["full"] * 4},
    }, REQUIRED={"vocab_size": 37, "num_hidden_layers": 4, "pad_token_id": 0},
    SILENT={"num_nextn_predict_layers": 1})
