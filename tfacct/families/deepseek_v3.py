"""DeepSeek-V3 and R1: V2's block at a larger size, and a router whose bias is a buffer, not a parameter."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from tfacct.architecture.blocks import Block, MtpHead
from tfacct.architecture.parts import MtpProjection
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch, UpTo, whole
from tfacct.families._deepseek_like import DeepseekLike
from tfacct.families._fields import MTP_LAYERS
from tfacct.ledger.groups import Ledger

RELEASED = "2024-12"


class Config(DeepseekLike):
    """`DeepseekV3Config`, with its class's defaults.

    `mtp` is a field of this program, not of published configs: if true, the multi-token prediction heads are counted
    too, num_nextn_predict_layers of them. The class leaves them out of the model.
    """

    intermediate_size: Count = 18432
    num_key_value_heads: Count = 128
    max_position_embeddings: Count = 4096
    moe_intermediate_size: Count = 2048
    n_routed_experts: Count = 256
    n_shared_experts: UpTo = 1
    num_experts_per_tok: Count = 8
    first_k_dense_replace: UpTo = 3
    num_nextn_predict_layers: Annotated[int, whole(0, 100)] = 1
    mtp: Switch = False

    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 129280,
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
    }
    stems: ClassVar = ("DeepseekV3",)
    uncounted: ClassVar = DeepseekLike.uncounted | {"num_nextn_predict_layers"}
    aliases: ClassVar = {**DeepseekLike.aliases, **dict.fromkeys(MTP_LAYERS[1:], MTP_LAYERS[0])}
    gotchas: ClassVar[tuple[str, ...]] = (
        *DeepseekLike.gotchas,
        "The layers that predict further tokens (MTP) are not counted, as in the class, unless `mtp` is true.",
        "The router's bias, one element per expert, is a buffer in the class and not a parameter here. The published "
        "total of DeepSeek-V3, 671,026,419,200, includes 14,848 of these.",
    )

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked: nor has it multi-token prediction heads."""
        return "it has no MTP layers: leave mtp out" if self.mtp else DeepseekLike.class_cannot(self)

    def with_further_layers(self) -> Ledger | None:
        """Ledger with the multi-token prediction heads."""
        return self.model_copy(update={"mtp": True}).transformer().ledger()

    def architecture(self) -> Transformer:
        """V2's blocks and, on request, multi-token prediction heads, each a block of experts."""
        shape = DeepseekLike.architecture(self)
        if not self.mtp or not self.num_nextn_predict_layers:
            return shape
        routed = DeepseekLike.architecture(self.model_copy(update={"first_k_dense_replace": 0})).stacks[0].block
        assert isinstance(routed, Block)
        joining = MtpProjection(hidden=self.hidden_size, eps=self.rms_norm_eps)
        return replace(shape, mtp=MtpHead(joining, routed, self.norm(), self.num_nextn_predict_layers))
