"""Mixture of experts (MoE): many MLPs, of which a router picks a few for each token, and a shared expert.

Sparsely gated experts: Shazeer et al. (arXiv 1701.06538); in every block: Jiang et al., "Mixtral of Experts"
(2401.04088). Shared experts: Dai et al., "DeepSeekMoE" (2401.06066). The shared network's gate: transformers'
Qwen2MoeSparseMoeBlock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.feed_forward import projections
from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.shared import ALONE
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Unused


@record(kw_only=True)
class Experts(Part):
    """Networks of `width`, gated or not: `experts` are stored, and each token is sent to `active` of them.

    `latent`: the experts read and make tokens of this width, between two products of their own for all of them
    (transformers' NemotronHMoE). `latent_norms`: ε of a norm behind the first of these, and of one behind each expert,
    with one weight for all of them (MuseSparkMoE).
    `shared`: width of one more network that every token passes; `shared_alike`: it has one as wide as an expert, in
    place of a width of its own. `shared_gate`: its result is weighted by one number per token. `bias`: the router's and
    the experts' products have biases; `shared_bias`: those of the shared network do, and those around the latent.
    `choice_bias`: the router chooses by scores with one more number for each expert, stored with the weights and not
    trained (transformers' Ernie4_5_MoeTopKRouter). `norms`: ε of norms of their own, where the router, the experts and
    the shared network each read the stream through one, and the last two have one behind them; a number for each expert
    multiplies its weight (transformers' Gemma4TextDecoderLayer). No count depends on how experts are weighed: by a
    softmax over all, or by a `scoring` of each, which are then made to sum to `scaling` (DeepseekV4TopKRouter). `bound`
    limits what is multiplied inside an expert. `idle`: the router has so many more choices, which give back what they
    read; a token is counted as if none of its own were among them. `others`: width of as many further experts, with a
    router of their own, for tokens that are no text: stored, sent none (Ernie4_5_VLMoeMoeBlock). If `late`, what the
    experts give joins the stream behind the next block, that of the shared network at once (LongcatFlashDecoderLayer);
    no count depends on it. `sum_bias`: a bias is added to the sum of what a token's experts give (NomicExperts).
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
    gated: bool = True
    latent: Size | None = None
    latent_norms: tuple[float, float] | None = None
    scoring: str = "softmax"
    scaling: float | None = None
    bound: float | None = None
    idle: Size | None = None
    others: Size | None = None
    late: bool = False
    sum_bias: bool = False

    name: ClassVar[str] = "mlp"
    axis_names: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "experts": "E",
        "active": "A",
        "width": "Fe",
        "shared": "Fs",
        "latent": "Dl",
        "idle": "Ez",
        "others": "Fo",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "E": "experts",
        "A": "experts that each token is sent to",
        "Fe": "width of one expert",
        "Fs": "width of the shared expert",
        "Dl": "width of a token in the experts",
        "Ez": "choices of the router that give back what they read",
        "Er": "choices of the router, E + Ez",
        "Fo": "width of one expert for tokens that are no text",
        **ALONE,
    }

    made: ClassVar[dict[str, str]] = {"U": "1", "Er": "E + Ez"}
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
        """U where there is a gate, Er where there are further choices."""
        there = {"U": self.shared_gate, "Er": self.idle is not None}
        return {axis: made for axis, made in self.made.items() if there.get(axis, True)}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Router, products of the experts, and those of the shared network."""
        normed = {
            name: (Pointwise(f"{at}.{name}", "B T D", weight="D", kind="norm_rms"),) if self.norms is not None else ()
            for name in ("router_norm", "experts_norm", "experts_post_norm", "shared_norm", "shared_post_norm")
        }
        choices = "E" if self.idle is None else "Er"
        routed = (
            *normed["router_norm"],
            *self._router(f"{at}.router", choices),
            Pointwise(
                f"{at}.routing",
                f"B T {choices}",
                weight="" if self.norms is None else "E",
                bias="E" if self.choice_bias else "",
                kind="routing",
            ),
            *normed["experts_norm"],
            *self._of_tokens(at),
            *normed["experts_post_norm"],
            *(self._of_others(f"{at}.others") if self.others is not None else ()),
        )
        if self.shared_width is None:
            return routed
        own = projections(
            f"{at}.shared", self.shared_axis, gated=self.gated, bias=self.shared_bias, function=self.activation
        )
        shared = (*normed["shared_norm"], *own, *normed["shared_post_norm"])
        added = Pointwise(f"{at}.shared_add", "B T D", kind="sum")
        if not self.shared_gate:
            return (*routed, *shared, added)
        gate = Matmul(f"{at}.shared_gate", "B T D, D U -> B T U")
        return (*routed, *shared, gate, Pointwise(f"{at}.shared_weighting", "B T D", kind="weighting"), added)

    def _router(self, at: str, choices: str) -> Iterator[Line]:
        """The router: a projection."""
        yield Matmul(at, f"B T D, D {choices} -> B T {choices}", bias=self.bias)

    def _of_others(self, at: str) -> Iterator[Line]:
        """What is stored of the experts that tokens of text never reach."""
        yield Unused(Matmul(f"{at}.router", "B T D, D E -> B T E", bias=self.bias))
        if self.choice_bias:
            yield Unused(Pointwise(f"{at}.routing", "B T E", bias="E"))
        for name in ("gate_proj", "up_proj")[not self.gated :]:
            yield Unused(Matmul(f"{at}.experts.{name}", "B T A D, D Fo -> B T A Fo", bias=self.bias, expert_axis="E"))
        yield Unused(Matmul(f"{at}.experts.down_proj", "B T A Fo, Fo D -> B T A D", bias=self.bias, expert_axis="E"))

    def _of_tokens(self, at: str) -> Iterator[Line]:
        """Products of the experts that a token is sent to, weighted; those around the latent, where there is one."""
        experts, of = f"{at}.experts", "D" if self.latent is None else "Dl"
        into = f"B T A {of}, {of} Fe -> B T A Fe"
        if self.latent is not None:
            yield Matmul(f"{at}.latent_down", "B T D, D Dl -> B T Dl", bias=self.shared_bias)
        if self.latent_norms is not None:
            yield Pointwise(f"{at}.latent_norm", "B T Dl", weight="Dl", kind="norm_rms")
        if self.gated:
            yield Matmul(f"{experts}.gate_proj", into, bias=self.bias, expert_axis="E")
        yield Matmul(f"{experts}.up_proj", into, bias=self.bias, expert_axis="E")
        yield Pointwise(f"{experts}.act", "B T A Fe", kind="activation", function=self.activation)
        yield Matmul(f"{experts}.down_proj", f"B T A Fe, Fe {of} -> B T A {of}", bias=self.bias, expert_axis="E")
        if self.latent_norms is not None:
            yield Pointwise(f"{at}.result_norm", "B T A Dl", weight="Dl", kind="norm_rms")
        yield Pointwise(f"{at}.weighting", f"B T A {of}", kind="weighting")
        if self.sum_bias:
            yield Pointwise(f"{at}.sum", "B T D", bias="D", kind="sum")
        if self.latent is not None:
            yield Matmul(f"{at}.latent_up", "B T Dl, Dl D -> B T D", bias=self.shared_bias)
