"""MiniMax-M1 as its own files spell it: MiniMax-Text-01's blocks, by other names."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.families._base import Count, Switch, UpTo, even
from tfacct.families._endings import DECODER
from tfacct.families._layers import FULL, Flags
from tfacct.families.minimax import LINEAR
from tfacct.families.minimax import Config as MiniMax

RELEASED = "2025-06"

FACTORS: Mapping[str, str] = {
    f"layernorm_{part}_{which}": f"{theirs}_{which}_factor"
    for part, theirs in (("full_attention", "full_attn"), ("linear_attention", "linear_attn"), ("mlp", "mlp"))
    for which in ("alpha", "beta")
}
"""Factors of streams and results, as its files call them → as the class does."""


class Config(MiniMax):
    """The fields of MiniMax-M1's own code. Sizes that are left out are those of `MiniMaxConfig`."""

    attn_type_list: Flags
    rotary_dim: Count | None = None
    shared_intermediate_size: UpTo = 0
    postnorm: Switch = True

    stems: ClassVar = ("MiniMaxM1", "MiniMax")
    class_type: ClassVar = "minimax"
    heads: ClassVar = DECODER
    aliases: ClassVar = {**MiniMax.aliases, **FACTORS}
    uncounted: ClassVar = MiniMax.uncounted | {"shared_intermediate_size", "postnorm"}
    harmless: ClassVar = MiniMax.harmless | {"shared_moe_mode"}

    def kinds(self) -> list[str]:
        """By attn_type_list, as long as there are layers. Raises ConfigError."""
        for name, understood in (("shared_intermediate_size", 0), ("postnorm", True)):
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        if len(self.attn_type_list) < self.num_hidden_layers:
            raise self.refused("attn_type_list", self.attn_type_list)
        kinds = [FULL if softmax else LINEAR for softmax in self.attn_type_list[: self.num_hidden_layers]]
        if self.layer_types not in (None, kinds):
            raise self.refused("layer_types", self.layer_types)
        return kinds

    def of_attention(self) -> dict[str, Any]:
        """A part of each head is rotated."""
        return {} if self.rotary_dim is None else {"rope_dim": even(min(self.rotary_dim, self.head_dim), "rotary_dim")}

    def class_fields(self) -> Mapping[str, Any]:
        """The kinds of layers and the factors, by the class's names."""
        return {"layer_types": self.kinds(), **{name: getattr(self, name) for name in FACTORS.values()}}
