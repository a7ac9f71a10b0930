"""DeepSeek-V3.2: V3's block, and an indexer in every layer that chooses the keys a token reads."""

from dataclasses import replace
from typing import Annotated, ClassVar

from tfacct.architecture.blocks import MtpHead
from tfacct.architecture.parts import MtpProjection
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Switch, whole
from tfacct.families._experts import beside_shared
from tfacct.families._fields import MTP_LAYERS
from tfacct.families._indexed import Indexed
from tfacct.ledger.groups import Ledger

RELEASED = "2025-12"


class Config(Indexed):
    """`DeepseekV32Config`, with its class's defaults, sizes too.

    `mtp` is a field of this program, not of published configs: if true, the multi-token prediction heads are counted
    too, num_nextn_predict_layers of them, each with an indexer of its own. The class leaves them out of the model.
    """

    vocab_size: Count = 129280
    hidden_size: Count = 7168
    intermediate_size: Count = 18432
    num_hidden_layers: Layers = 61
    num_attention_heads: Count = 128
    num_key_value_heads: Count = 128
    max_position_embeddings: Count = 163840
    q_lora_rank: Count = 1536
    index_n_heads: Count = 64
    num_nextn_predict_layers: Annotated[int, whole(0, 100)] = 1
    mtp: Switch = False

    uncounted: ClassVar = Indexed.uncounted | {"num_nextn_predict_layers"}
    aliases: ClassVar = {**Indexed.aliases, **dict.fromkeys(MTP_LAYERS[1:], MTP_LAYERS[0])}
    stems: ClassVar = ("DeepseekV32",)

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked: nor has it multi-token prediction heads."""
        return "it has no MTP layers: leave mtp out" if self.mtp else Indexed.class_cannot(self)

    def with_further_layers(self) -> Ledger | None:
        """Ledger with the multi-token prediction heads."""
        return self.model_copy(update={"mtp": True}).transformer().ledger()

    def architecture(self) -> Transformer:
        """An indexer in every layer, and, on request, multi-token prediction heads, each a block of experts."""
        self.refuse()
        shape = self.indexed([self.choosing()] * self.num_hidden_layers)
        if not self.mtp or not self.num_nextn_predict_layers:
            return shape
        routed = self.block(self.choosing(), beside_shared(self, self.n_routed_experts, self.n_shared_experts))
        joining = MtpProjection(hidden=self.hidden_size, eps=self.rms_norm_eps)
        return replace(shape, mtp=MtpHead(joining, routed, self.norm(), self.num_nextn_predict_layers))
