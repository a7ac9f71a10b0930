from tests.families._configs import ABSENT, GROUPED, family, of_dense_layers, of_every_expert
from tests.families.deepseek import DEEPSEEK_V32

# fmt: off
HUNYUAN_V1_DENSE = family("hunyuan_v1_dense", GROUPED, num_hidden_layers=3, vocab_size=139, max_position_embeddings=83,
    attention_bias=True, REQUIRED={"head_dim": 128, "num_hidden_layers": 2})
family("hunyuan_v1_moe", HUNYUAN_V1_DENSE, vocab_size=137, num_experts=7, moe_topk=[4, 5, 4],
    LOGITS=of_every_expert(moe_topk=7))
family("hy_v3", GROUPED, num_hidden_layers=3, vocab_size=419, max_position_embeddings=121, attention_bias=True,
    moe_intermediate_size=37, num_experts=7, num_shared_experts=2, num_experts_per_tok=4,
    LOGITS=of_dense_layers(mlp_layer_types=["dense"] * 3))
family("hy_v4", DEEPSEEK_V32, vocab_size=163, hc_mult=13, indexer_types=["full", "shared", "full"],
    mlp_layer_types=["dense", "sparse", "sparse"], pad_token_id=0, first_k_dense_replace=ABSENT,
    LOGITS={
        "": {"mlp_layer_types": ["dense"] * 3},
        "of indexers alone": {"hc_mult": 2, "indexer_types": ["full"] * 3, "hc_magnitude": 1.3},
    }, SILENT={"hc_magnitude": 1.5})
