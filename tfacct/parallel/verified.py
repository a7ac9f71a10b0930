"""Families whose transformers class was compared with what ranks of a parallel layout send and store: one row for each
fact that decides a number."""

from __future__ import annotations

TORCH_PLAN = frozenset(
    """
    bart bert blenderbot blenderbot-small camembert data2vec-text deepseek_v4 distilbert electra ernie eurobert
    gemma gemma2 gemma3_text gte jina_embeddings_v3 layoutlm llama m2m_100 marian mbart megatron-bert mistral
    mixtral mpnet mt5 mvp nomic_bert olmo2 olmo3 pegasus plbart qwen2 qwen3 qwen3_moe rembert roberta
    roberta-prelayernorm starcoder2 t5 umt5 whisper xlm-roberta xlm-roberta-xl
    """.split()
)
"""Divided by torch's own plan; their tensors' rows are padded as counted where ranks of `fsdp` do not divide them."""
PUBLISHED_PLAN = frozenset(
    """
    cohere cohere2 cwm deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5 ernie4_5_moe exaone4 flex_olmo gemma
    gemma2 gemma3_text glm_moe_dsa granite helium hyperclovax internlm3 iquestcoder kimi_k2 llama mimo_v2_flash
    minimax_m2 ministral3 mistral mixtral nemotron olmo2 olmo3 olmoe qwen3_moe seed_oss smollm3 starcoder2
    vaultgemma
    """.split()
)
"""Divided by the plan that transformers publishes with the class."""
GATHERED = frozenset(
    """
    bamba deepseek_v4 falcon_h1 falcon_mamba gemma3n_text gemma4_text granitemoehybrid jamba lfm2 lfm2_moe mamba
    mamba2 minimax minimax_m1 minimax_m3_vl_text minimax_text_01 nemotron_h qwen3_5_moe_text qwen3_5_text
    qwen3_next recurrent_gemma
    """.split()
)
"""Divided by fully_shard, though some of their parts have no rule."""
FP32_ROUTING = frozenset(
    """
    deepseek_v2 deepseek_v3 deepseek_v32 dots1 glm4_moe glm4_moe_lite glm_moe_dsa kimi_k2 mimo_v2_flash minimax_m2
    mixtral
    """.split()
)
"""The class sums a token's experts by weights in fp32."""
COMPUTE_ROUTING = frozenset("ernie4_5_moe flex_olmo olmoe qwen2_moe qwen3_moe".split())
"""The class sums a token's experts by weights in the dtype of the residual stream."""
FP32_ROUTER = frozenset("ernie4_5_moe".split())
"""The router's weights are in fp32 whatever the step's dtype."""
