"""Random small models of families with parts of their own whose training step is measured: hybrids, and others."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tests.training_relatives import grouped, routed

Pick: TypeAlias = Callable[[list[Any]], Any]
Config: TypeAlias = dict[str, Any]


def mixers(pick: Pick, config: Config, kind: str) -> list[str]:
    """What stands in each layer: attention, or what stands in its place; both where there is room."""
    count = config["num_hidden_layers"]
    kinds = [pick(["full_attention", kind]) for _ in range(count)]
    kinds[pick([0, count - 1])] = "full_attention"  # a class may ask for it
    return kinds


def lfm2(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config, own_head=False),
        "layer_types": mixers(pick, config, "conv"),
        "conv_bias": pick([True, False]),
        "conv_L_cache": pick([2, 3, 4]),
        "block_auto_adjust_ff_dim": False,
    }


def lfm2_moe(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config, own_head=False),
        "layer_types": mixers(pick, config, "conv"),
        "conv_bias": pick([True, False]),
        "conv_L_cache": pick([2, 3, 4]),
        "moe_intermediate_size": pick([16, 72, 200]),
        "num_dense_layers": pick([0, 1, 2]),
        "num_experts": pick([3, 5]),
        "norm_topk_prob": pick([True, True, False]),
        "use_expert_bias": pick([True, True, False]),
    }


HYBRIDS: Mapping[str, Callable[[Pick, Config], Config]] = {own.__name__: own for own in (lfm2, lfm2_moe)}
