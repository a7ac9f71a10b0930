"""Hunyuan with experts: as its dense models, and in every layer experts beside a shared network of the same width."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Experts
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, CountOrList, FamilyConfig
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._hunyuan_like import HunyuanLike

RELEASED = "2025-06"


class Config(HunyuanLike):
    """`HunYuanMoEV1Config`, with its class's defaults, sizes too. intermediate_size is the width of one expert, and of
    the shared network."""

    num_experts: Count = 1
    moe_topk: CountOrList = 1
    moe_intermediate_size: CountOrList | None = None
    num_shared_expert: CountOrList | None = None

    stems: ClassVar = ("HunYuanMoEV1",)
    uncounted: ClassVar = HunyuanLike.uncounted | {"moe_intermediate_size", "num_shared_expert"}
    aliases: ClassVar = {
        **HunyuanLike.aliases,
        "num_experts_per_tok": "moe_topk",
        "num_local_experts": "num_experts",
    }
    harmless: ClassVar = HunyuanLike.harmless | frozenset(
        """
        capacity_factor group_limited_greedy moe_drop_tokens moe_layer_num_skipped moe_random_routing_dropped_token
        n_group routed_scaling_factor skip_cls_token topk_group use_mixed_mlp_moe
        """.split()
    )
    hf_paths: ClassVar = {
        **HunyuanLike.hf_paths,
        **ROUTED_PATHS,
        "blocks.*.mlp.router": "model.layers.*.mlp.gate.wg",
        **{
            f"blocks.*.mlp.shared.{name}": f"model.layers.*.mlp.shared_mlp.{name}"
            for name in ("gate_proj", "up_proj", "down_proj")
        },
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "tuple[FamilyConfig, dict[str, Any], list[str]]":
        """Files that give the number of a list's layers once more under the alias say the same thing."""
        listed, once = raw.get("moe_topk"), raw.get("num_experts_per_tok")
        if isinstance(listed, list) and listed and all(number == once for number in listed):
            raw = {name: value for name, value in raw.items() if name != "num_experts_per_tok"}
        return super().read(raw)

    def active(self) -> list[int]:
        """How many experts a token is sent to, layer by layer. Raises ConfigError."""
        if isinstance(self.moe_topk, int):
            return [self.moe_topk] * self.num_hidden_layers
        if len(self.moe_topk) < self.num_hidden_layers:
            raise ConfigError(
                f"moe_topk names {len(self.moe_topk):,} layers, and num_hidden_layers is {self.num_hidden_layers:,}"
            )
        return self.moe_topk[: self.num_hidden_layers]

    def routed(self, active: int) -> Block:
        """A block whose tokens are sent to so many experts."""
        check_active(active, self.num_experts, ("moe_topk", "num_experts"))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=active,
            width=self.intermediate_size,
            shared_alike=True,
            activation=self.activation,
        )
        return self.block(self.attention(), experts)

    def architecture(self) -> Transformer:
        """Experts in every layer."""
        for name, only in (("moe_intermediate_size", self.intermediate_size), ("num_shared_expert", 1)):
            said = getattr(self, name)
            if said is not None and {*(said if isinstance(said, list) else [said])} != {only}:
                raise self.refused(name, said)
        per_layer = self.active()
        kinds = {active: self.routed(active) for active in dict.fromkeys(per_layer)}
        return self.decoder([kinds[active] for active in per_layer])
