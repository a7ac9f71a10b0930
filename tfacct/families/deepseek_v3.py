"""DeepSeek-V3 and R1: V2's block, more of it, and a router whose bias is a buffer, not a parameter."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from tfacct.families._base import Count
from tfacct.families._deepseek_like import DeepseekLike


class Config(DeepseekLike):
    """`DeepseekV3Config`, with its class's defaults. Its layer for the token after next (MTP) is not counted."""

    intermediate_size: Count = 18432
    num_key_value_heads: Count = 128
    max_position_embeddings: Count = 4096
    moe_intermediate_size: Count = 2048
    n_routed_experts: Count = 256
    n_shared_experts: Annotated[int, Field(strict=True, ge=0)] = 1
    num_experts_per_tok: Count = 8
    first_k_dense_replace: Annotated[int, Field(strict=True, ge=0)] = 3

    gotchas: ClassVar = (
        *DeepseekLike.gotchas,
        "The router's bias, one number per expert, is a buffer in the class and no parameter here. The published "
        "total of DeepSeek-V3, 671,026,419,200, holds 14,848 of them.",
    )
