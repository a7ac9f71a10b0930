"""Granite 3 with experts: Mixtral's block; constants multiply embeddings, scores, results and logits."""

from typing import ClassVar

from tfacct.architecture.parts import Experts
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real
from tfacct.families._experts import ROUTED_TENSORS, check_active
from tfacct.families._granite_like import GraniteLike

RELEASED = "2024-08"

_EXPERTS = "model.layers.*.block_sparse_moe.experts"


class Config(GraniteLike):
    """`GraniteMoeConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    attention_multiplier: Real | None = 1.0
    num_local_experts: Count = 8
    num_experts_per_tok: Count = 2

    stems: ClassVar = ("GraniteMoe",)
    uncounted: ClassVar = GraniteLike.uncounted | {"mlp_bias"}
    aliases: ClassVar = {"num_experts": "num_local_experts"}
    hf_paths: ClassVar = {
        **GraniteLike.hf_paths,
        "blocks.*.mlp.router": "model.layers.*.block_sparse_moe.router",
        "blocks.*.mlp.experts.gate_proj": _EXPERTS,
        "blocks.*.mlp.experts.up_proj": _EXPERTS,
        "blocks.*.mlp.experts.down_proj": _EXPERTS,
    }
    hf_tensors: ClassVar = {
        ours: theirs.replace(".mlp.", ".block_sparse_moe.") for ours, theirs in ROUTED_TENSORS.items()
    }

    @property
    def logit_scale(self) -> float:
        """1 / logits_scaling."""
        return 1 / self.logits_scaling

    def experts(self) -> Experts:
        """Experts, without biases. Raises ConfigError."""
        if self.mlp_bias:
            raise self.refused("mlp_bias", True)
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_local_experts"))
        return Experts(
            hidden=self.hidden_size,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            activation=self.activation,
        )

    def architecture(self) -> Transformer:
        """Experts in every layer."""
        return self.decoder(self.equal_blocks(self.granite_block(self.experts())))
