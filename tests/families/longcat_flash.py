"""LongCat-Flash: two blocks of latent attention in each layer, experts whose result comes a block later."""

from hypothesis import strategies as st

from tests.families._drawing import SMALL, WIDTH, Draw, Fields, latent, some, without
from tests.families._sizes import Distinct, Sized
from tests.families._sizes import sized_latent

TINY = {
    "model_type": "longcat_flash", "vocab_size": 153, "hidden_size": 48, "num_layers": 2, "num_attention_heads": 6,
    "ffn_hidden_size": 71, "max_position_embeddings": 67, "q_lora_rank": 22, "kv_lora_rank": 14, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "head_dim": 4, "v_head_dim": 10, "n_routed_experts": 15, "moe_topk": 7,
    "expert_ffn_hidden_size": 37, "zero_expert_num": 0, "latent_attention": "expanded",
}  # fmt: skip
VARIANTS = {"with choices that are no experts": {**TINY, "zero_expert_num": 4}}
LOGITS = {"of all experts": {**TINY, "moe_topk": 15, "routed_scaling_factor": 1.0}}
REQUIRED = {
    "vocab_size": 37, "hidden_size": 32, "num_layers": 1, "num_attention_heads": 2, "q_lora_rank": 16,
    "intermediate_size": 40, "moe_intermediate_size": 8, "n_routed_experts": 12, "zero_expert_num": 0,
}  # fmt: skip
SILENT = {"routed_scaling_factor": 3.0, "num_hidden_layers": 4, "qk_head_dim": 12}


def drawn(draw: Draw) -> Fields:
    fields = without(latent(draw, 1), "n_shared_experts", "first_k_dense_replace", "n_group", "topk_group")
    fields = without(fields, "tie_word_embeddings", "num_hidden_layers", "intermediate_size", "moe_intermediate_size")
    fields |= {"q_lora_rank": draw(SMALL), "num_layers": draw(st.integers(1, 2)), "zero_expert_num": 0}
    fields |= {"ffn_hidden_size": draw(WIDTH), "expert_ffn_hidden_size": draw(SMALL)}
    fields |= {"head_dim": fields["qk_rope_head_dim"], "moe_topk": max(fields.pop("num_experts_per_tok"), 2)}
    return some(draw, fields, routed_scaling_factor=st.just(2.0))


def sized(of: Distinct) -> Sized:
    config, sizes = sized_latent(of, ranked=True)
    config = without(config, "first_k_dense_replace", "n_shared_experts", "num_hidden_layers")
    idle, wide = of.P, of.F
    config |= {"num_layers": of.L, "ffn_hidden_size": wide, "zero_expert_num": idle}
    return config, {**without(sizes, "L"), "Fs": wide, "F": wide, "Ez": idle, "Er": sizes["E"] + idle}
