"""Granite 4.0: Mamba-2 in most layers, attention in a few; experts beside a shared network, or the shared network
alone; constants multiply embeddings, scores, results and logits."""

from typing import ClassVar, Literal

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Attention, Experts, FeedForward, Mamba2
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Real, UpTo
from tfacct.families._experts import check_active
from tfacct.families._granite_like import GraniteLike
from tfacct.families._layers import LayerTypes, kinds_of_layers
from tfacct.families._mamba_hybrid import FULL, MAMBA, OLDER, MambaHybrid

RELEASED = "2025-05"

_EXPERTS = "model.layers.*.block_sparse_moe.experts"


class Config(GraniteLike, MambaHybrid):
    """`GraniteMoeHybridConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    attention_multiplier: Real | None = 1.0
    num_local_experts: UpTo = 8
    num_experts_per_tok: UpTo = 2
    shared_intermediate_size: Count = 1024
    position_embedding_type: Literal["rope", "nope"] | None = None
    layer_types: LayerTypes | None = None

    stems: ClassVar = ("GraniteMoeHybrid",)
    uncounted: ClassVar = GraniteLike.uncounted | {"mlp_bias"}
    aliases: ClassVar = {"num_experts": "num_local_experts", "layers_block_type": "layer_types"}
    harmless: ClassVar = MambaHybrid.harmless | {"init_method", "normalization_function", "add_bias_linear"}
    heads: ClassVar = GraniteLike.heads
    hf_paths: ClassVar = {
        **MambaHybrid.hf_paths,
        "blocks.*.mlp.router": "model.layers.*.block_sparse_moe.router",
        **{f"blocks.*.mlp.experts.{name}": _EXPERTS for name in ("gate_proj", "up_proj", "down_proj")},
        **{
            f"blocks.*.mlp{shared}.{name}": f"model.layers.*.shared_mlp.{theirs}"
            for shared in ("", ".shared")
            for name, theirs in {
                "gate_proj": "input_linear",
                "up_proj": "input_linear",
                "down_proj": "output_linear",
            }.items()
        },
    }
    hf_tensors: ClassVar = {
        **MambaHybrid.hf_tensors,
        "blocks.*.mlp.experts.gate_proj.weight": f"{_EXPERTS}.gate_up_proj",
        "blocks.*.mlp.experts.up_proj.weight": f"{_EXPERTS}.gate_up_proj",
        "blocks.*.mlp.experts.down_proj.weight": f"{_EXPERTS}.down_proj",
    }

    @property
    def logit_scale(self) -> float:
        """1 / logits_scaling."""
        return 1 / self.logits_scaling

    def kinds(self) -> list[str]:
        """As layer_types says."""
        if self.layer_types is None:
            return [MAMBA] * self.num_hidden_layers
        kinds = kinds_of_layers(self.layer_types, self.num_hidden_layers, (MAMBA, FULL, *OLDER))
        return [OLDER.get(kind, kind) for kind in kinds]

    def _network(self) -> FeedForward | Experts:
        """Experts beside the shared network, or the shared one alone. Raises ConfigError."""
        hidden, shared = self.hidden_size, self.shared_intermediate_size
        if not self.num_local_experts:
            return FeedForward(hidden=hidden, width=shared, gated=True, activation=self.activation)
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_local_experts"))
        if not self.num_experts_per_tok:
            raise ConfigError("num_experts_per_tok must be at least 1, not 0")
        return Experts(
            hidden=hidden,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            shared=shared,
            activation=self.activation,
        )

    def architecture(self) -> Transformer:
        """One network in all layers; results are multiplied before they are added."""
        if self.mlp_bias:
            raise self.refused("mlp_bias", True)
        biased, turned = self.attention_bias, self.position_embedding_type == "rope"
        attention = self.attention(
            qkv_bias=biased,
            out_bias=biased,
            scale=self.attention_multiplier,
            rotary=self.rotary() if turned else None,
        )
        network, norm = self._network(), self.norm()
        mixers: dict[str, Attention | Mamba2] = {FULL: attention, MAMBA: self.mixer()}
        made = {
            kind: Block(tuple(Sublayer(part, norm, factor=self.residual_multiplier) for part in (mixer, network)))
            for kind, mixer in mixers.items()
        }
        return self.decoder([made[kind] for kind in self.kinds()])
