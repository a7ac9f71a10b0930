"""Experts: many feed-forward networks, of which a router picks a few for each token, and one that all tokens share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.lines import Line, Matmul, Pointwise
from tfacct.notation import Size
from tfacct.parts.feed_forward import projections
from tfacct.parts.part import Part


@dataclass(frozen=True, slots=True)
class Experts(Part):
    """`experts` gated networks of `width`, of which each token is sent to `active`.

    `shared`: the width of one more network that every token passes; `shared_gate`: its result is weighted by one number
    per token. `bias`: the router's and the experts' products have biases; `shared_bias`: those of the shared network.
    """

    hidden: Size
    experts: Size
    active: Size
    width: Size
    shared: Size | None = None
    shared_gate: bool = False
    bias: bool = False
    shared_bias: bool = False
    activation: str = "silu"

    letters: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "experts": "E",
        "active": "A",
        "width": "Fe",
        "shared": "Fs",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "E": "experts",
        "A": "experts that each token is sent to",
        "Fe": "width of one expert",
        "Fs": "width of the network that all tokens share",
        "U": "1: the shared network's one gate",
    }

    def axes(self) -> dict[str, Size]:
        """The sizes, and U = 1 where there is a gate."""
        return {**Part.axes(self), **({"U": 1} if self.shared_gate else {})}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The router, the experts' products, and the shared network's."""
        experts = f"{at}.experts"
        routed = (
            Matmul(f"{at}.router", "B T D, D E -> B T E", bias=self.bias),
            Pointwise(f"{at}.routing", "B T E"),
            Matmul(f"{experts}.gate_proj", "B T A D, D Fe -> B T A Fe", bias=self.bias, bank="E"),
            Matmul(f"{experts}.up_proj", "B T A D, D Fe -> B T A Fe", bias=self.bias, bank="E"),
            Pointwise(f"{experts}.act", "B T A Fe"),
            Matmul(f"{experts}.down_proj", "B T A Fe, Fe D -> B T A D", bias=self.bias, bank="E"),
            Pointwise(f"{at}.weighting", "B T A D"),
        )
        if self.shared is None:
            return routed
        shared = projections(f"{at}.shared", "Fs", gated=True, bias=self.shared_bias)
        added = Pointwise(f"{at}.shared_add", "B T D", sums=True)
        if not self.shared_gate:
            return (*routed, *shared, added)
        gate = Matmul(f"{at}.shared_gate", "B T D, D U -> B T U")
        return (*routed, *shared, gate, Pointwise(f"{at}.shared_weighting", "B T D"), added)
