"""Experts: many feed-forward networks, of which a router picks a few for each token, and one that all tokens share.

Sparsely gated experts: Shazeer et al. (arXiv 1701.06538); in every block: Jiang et al., "Mixtral of Experts"
(2401.04088). Shared experts: Dai et al., "DeepSeekMoE" (2401.06066). The shared network's gate: transformers'
Qwen2MoeSparseMoeBlock.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.feed_forward import projections
from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise


@record(kw_only=True)
class Experts(Part):
    """Gated networks of `width`: `experts` are stored, and each token is sent to `active` of them.

    `shared`: width of one more network that every token passes; `shared_alike`: it has one as wide as an expert, in
    place of a width of its own. `shared_gate`: its result is weighted by one number per
    token. `bias`: the router's and the experts' products have biases; `shared_bias`: those of the shared network do.
    `choice_bias`: the router chooses by scores with one more number for each expert, stored with the weights and not
    trained (transformers' Ernie4_5_MoeTopKRouter). `norms`: ε of norms of their own, where the router, the experts and
    the shared network each read the stream through one, and the last two have one behind them; a number for each expert
    multiplies its weight (transformers' Gemma4TextDecoderLayer).
    """

    hidden: Size
    experts: Size
    active: Size
    width: Size
    shared: Size | None = None
    shared_alike: bool = False
    shared_gate: bool = False
    bias: bool = False
    shared_bias: bool = False
    choice_bias: bool = False
    norms: float | None = None
    activation: str = "silu"

    name: ClassVar[str] = "mlp"
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
        "Fs": "width of the shared network",
        "U": "1: the gate of the shared network",
    }

    made: ClassVar[dict[str, str]] = {"U": "1"}
    cases: ClassVar[frozenset[str]] = frozenset("A")
    at_most: ClassVar[dict[str, str]] = {"A": "E"}
    dealt: ClassVar[str | None] = "E"

    @property
    def shared_width(self) -> Size | None:
        """Width of the shared network; None where there is none."""
        return self.width if self.shared_alike else self.shared

    @property
    def shared_axis(self) -> str:
        """Axis of that width."""
        return "Fe" if self.shared_alike else "Fs"

    def derived(self) -> dict[str, str]:
        """U where there is a gate."""
        return self.made if self.shared_gate else {}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Router, products of the experts, and those of the shared network."""
        experts = f"{at}.experts"
        normed = {
            name: (Pointwise(f"{at}.{name}", "B T D", weight="D"),) if self.norms is not None else ()
            for name in ("router_norm", "experts_norm", "experts_post_norm", "shared_norm", "shared_post_norm")
        }
        routed = (
            *normed["router_norm"],
            Matmul(f"{at}.router", "B T D, D E -> B T E", bias=self.bias),
            Pointwise(
                f"{at}.routing",
                "B T E",
                weight="" if self.norms is None else "E",
                bias="E" if self.choice_bias else "",
            ),
            *normed["experts_norm"],
            Matmul(f"{experts}.gate_proj", "B T A D, D Fe -> B T A Fe", bias=self.bias, bank="E"),
            Matmul(f"{experts}.up_proj", "B T A D, D Fe -> B T A Fe", bias=self.bias, bank="E"),
            Pointwise(f"{experts}.act", "B T A Fe"),
            Matmul(f"{experts}.down_proj", "B T A Fe, Fe D -> B T A D", bias=self.bias, bank="E"),
            Pointwise(f"{at}.weighting", "B T A D"),
            *normed["experts_post_norm"],
        )
        if self.shared_width is None:
            return routed
        own = projections(f"{at}.shared", self.shared_axis, gated=True, bias=self.shared_bias)
        shared = (*normed["shared_norm"], *own, *normed["shared_post_norm"])
        added = Pointwise(f"{at}.shared_add", "B T D", sums=True)
        if not self.shared_gate:
            return (*routed, *shared, added)
        gate = Matmul(f"{at}.shared_gate", "B T D, D U -> B T U")
        return (*routed, *shared, gate, Pointwise(f"{at}.shared_weighting", "B T D"), added)
