"""LFM2 with experts: its convolutions and attention; dense layers in front, experts behind."""

from typing import ClassVar

from tfacct.architecture.parts import Experts, FeedForward
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch, UpTo
from tfacct.families._experts import check_active
from tfacct.families._layers import FULL, LayerTypes, kinds_of_layers
from tfacct.families.lfm2 import CONV, Lfm2Like

RELEASED = "2025-10"


class Config(Lfm2Like):
    """`Lfm2MoeConfig`, with its class's defaults, sizes too. It has none for layer_types."""

    hidden_size: Count = 2048
    intermediate_size: Count = 7168
    layer_types: LayerTypes
    moe_intermediate_size: Count = 1792
    num_dense_layers: UpTo = 2
    num_experts: Count = 32
    num_experts_per_tok: Count = 4
    use_expert_bias: Switch = True

    stems: ClassVar = ("Lfm2Moe",)
    uncounted: ClassVar = Lfm2Like.uncounted | {"use_expert_bias"}
    harmless: ClassVar = Lfm2Like.harmless | {"routed_scaling_factor"}
    hf_paths: ClassVar = {
        **Lfm2Like.hf_paths,
        "blocks.*.mlp.router": "model.layers.*.feed_forward.gate",
        "blocks.*.mlp.experts.gate_proj": "model.layers.*.feed_forward.experts",
        "blocks.*.mlp.experts.up_proj": "model.layers.*.feed_forward.experts",
        "blocks.*.mlp.experts.down_proj": "model.layers.*.feed_forward.experts",
    }
    hf_tensors: ClassVar = {
        **Lfm2Like.hf_tensors,
        "blocks.*.mlp.experts.gate_proj.weight": "model.layers.*.feed_forward.experts.gate_up_proj",
        "blocks.*.mlp.experts.up_proj.weight": "model.layers.*.feed_forward.experts.gate_up_proj",
        "blocks.*.mlp.experts.down_proj.weight": "model.layers.*.feed_forward.experts.down_proj",
    }

    def architecture(self) -> Transformer:
        """Dense layers in front, experts behind."""
        check_active(self.num_experts_per_tok, self.num_experts, ("num_experts_per_tok", "num_experts"))
        layers, hidden = self.num_hidden_layers, self.hidden_size
        dense = FeedForward(hidden=hidden, width=self.intermediate_size, gated=True, activation="silu")
        experts = Experts(
            hidden=hidden,
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
        )
        networks = [dense if number < self.num_dense_layers else experts for number in range(layers)]
        return self.mixed(kinds_of_layers(self.layer_types, layers, (FULL, CONV)), networks)
