"""DeepSeek-V3 and R1: V2's block, more of it, and a router whose bias is a buffer, not a parameter."""

from __future__ import annotations

from tfacct.families._base import Count, UpTo
from tfacct.families._deepseek_like import DeepseekLike


class Config(DeepseekLike):
    """`DeepseekV3Config`, with its class's defaults. Its layer for the token after next (MTP) is not counted."""

    intermediate_size: Count = 18432
    num_key_value_heads: Count = 128
    max_position_embeddings: Count = 4096
    moe_intermediate_size: Count = 2048
    n_routed_experts: Count = 256
    n_shared_experts: UpTo = 1
    num_experts_per_tok: Count = 8
    first_k_dense_replace: UpTo = 3
