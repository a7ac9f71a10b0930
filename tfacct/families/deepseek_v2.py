"""DeepSeek-V2 and V2-Lite: latent attention, with and without a latent for the queries, and experts."""

from typing import ClassVar

from tfacct.families._base import Count, Switch, UpTo
from tfacct.families._deepseek_like import DeepseekLike
from tfacct.families._endings import CLASSIFYING

RELEASED = "2024-05"


class Config(DeepseekLike):
    """`DeepseekV2Config`, with its class's defaults."""

    intermediate_size: Count = 11008
    max_position_embeddings: Count = 2048
    mlp_bias: Switch = False
    moe_intermediate_size: Count = 1407
    n_routed_experts: Count = 64
    n_shared_experts: UpTo = 2
    first_k_dense_replace: UpTo = 0

    stems: ClassVar = ("DeepseekV2",)
    heads: ClassVar = CLASSIFYING
    gotchas: ClassVar = (
        *DeepseekLike.gotchas,
        "num_experts_per_tok must be given: the class's default is null.",
        "mlp_bias puts biases on dense and shared networks, not on the experts.",
    )

    @property
    def biased_networks(self) -> bool:
        """mlp_bias: not those of the routed experts."""
        return self.mlp_bias
