from tests.families._configs import ABSENT, FULL, GROUPED, LINEAR, SLIDING, family, of_every_expert

# fmt: off
GRANITE = family("granite", GROUPED, vocab_size=193, max_position_embeddings=39, embedding_multiplier=3.0,
    logits_scaling=4.0, residual_multiplier=0.22, attention_multiplier=0.13, attention_bias=True, mlp_bias=True)
GRANITEMOE = family("granitemoe", GRANITE, intermediate_size=37, vocab_size=373, max_position_embeddings=109,
    num_local_experts=7, num_experts_per_tok=4, mlp_bias=ABSENT, LOGITS=of_every_expert(num_experts_per_tok=7))
GRANITEMOESHARED = family("granitemoeshared", GRANITEMOE, vocab_size=409, shared_intermediate_size=53,
    VARIANTS={"without a shared network": {"shared_intermediate_size": 0}},
    LOGITS=of_every_expert(num_experts_per_tok=7))
family("granitemoehybrid", GRANITEMOE, num_hidden_layers=3, head_dim=20, vocab_size=211, max_position_embeddings=103,
    layer_types=["mamba", "attention", "mamba"], mamba_n_heads=6, mamba_n_groups=2, mamba_d_state=5, mamba_d_conv=8,
    mamba_chunk_size=12, mamba_proj_bias=True, shared_intermediate_size=71, position_embedding_type="nope",
    LOGITS={
        "": None,
        "of every expert": {"num_experts_per_tok": 7},
        "without experts": {"num_local_experts": 0, "position_embedding_type": "rope"},
    }, REQUIRED={"num_hidden_layers": 3, "layer_types": [LINEAR, FULL, LINEAR]},
    SILENT={"mamba_d_head": 16})
family("granite_swa", GRANITE, num_hidden_layers=3, vocab_size=439, sliding_window=5,
    layer_rope_theta=[700.0, 0, 100.0], layer_types=[SLIDING, FULL, FULL],
    LOGITS={"of one base": {"layer_rope_theta": None, "layer_types": None}}, REQUIRED={"num_hidden_layers": 5})
family("granitemoe_swa", GRANITEMOESHARED, num_hidden_layers=3, vocab_size=443, sliding_window=5,
    layer_rope_theta=[700.0, 0, 100.0], layer_types=[SLIDING, FULL, FULL],
    LOGITS=of_every_expert(num_experts_per_tok=7), REQUIRED={"num_hidden_layers": 5})
family("hyperclovax", GRANITE, vocab_size=197, max_position_embeddings=41,
    VARIANTS={"norms in front only": {"use_post_norm": False}},
    LOGITS={"in front only": {"attention_multiplier": None, "use_post_norm": False}})
