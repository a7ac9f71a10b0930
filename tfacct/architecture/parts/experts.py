"""Mixture of experts (MoE): many MLPs, of which a router picks a few for each token, and a shared expert.

Sparsely gated experts: Shazeer et al. (arXiv 1701.06538); in every layer: Jiang et al., "Mixtral of Experts"
(2401.04088). Shared experts: Dai et al., "DeepSeekMoE" (2401.06066). Gate of the shared expert: transformers'
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
    """Mixture of experts: `experts` MLPs of `width` are stored, and each token uses `active` of them.

    `latent`: width of the experts' inputs and outputs, between two projections shared by all experts (transformers'
    NemotronHMoE). `latent_norms`: ε of a norm after the first projection, and of one after each expert, with one weight
    for all experts (MuseSparkMoE). `shared`: width of a shared expert; `shared_alike`: a shared expert as wide as the
    others; `shared_first`: it runs before them. `shared_gate`: its result is multiplied by one number per token.
    `bias`: router and experts have biases; `shared_bias`: the shared expert and the latent projections have them.
    `choice_bias`: an untrained bias per expert in the choice of experts (transformers' Ernie4_5_MoeTopKRouter).
    `norms`: ε of separate norms of the inputs of router, experts and shared expert, and of the outputs of the latter
    two; each expert's weight is multiplied by a learned number (transformers' Gemma4TextDecoderLayer). `scoring`:
    softmax over all experts, or a function of each score; the weights are then normalized to the sum `scaling`
    (DeepseekV4TopKRouter). No count depends on it. `bound` limits activations inside an expert. `idle`: number of
    further choices of the router that return their input; counts assume that no token chooses them. `others`: width of
    as many further experts with their own router, for tokens that are no text; they are stored, but not used
    (Ernie4_5_VLMoeMoeBlock). `late`: the experts' result is added after the next layer, that of the shared expert at
    once (LongcatFlashDecoderLayer); no count depends on it. `sum_bias`: a bias is added to the sum of a token's experts
    (NomicExperts).
    """

    hidden: Size
    experts: Size
    active: Size
    width: Size
    shared: Size | None = None
    shared_alike: bool = False
    shared_first: bool = False
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
        "A": "experts per token",
        "Fe": "width of one expert",
        "Fs": "width of the shared expert",
        "Dl": "width of the experts' input and output",
        "Ez": "zero-computation (identity) experts",
        "Er": "router outputs, E + Ez",
        "Fo": "width of one expert for non-text tokens",
        **ALONE,
    }

    made: ClassVar[dict[str, str]] = {"U": "1", "Er": "E + Ez"}
    cases: ClassVar[frozenset[str]] = frozenset("A")
    at_most: ClassVar[dict[str, str]] = {"A": "E"}
    dealt: ClassVar[str | None] = "E"

    @property
    def shared_width(self) -> Size | None:
        """Width of the shared expert; None without one."""
        return self.width if self.shared_alike else self.shared

    @property
    def shared_axis(self) -> str:
        """Axis of the shared expert's width."""
        return "Fe" if self.shared_alike else "Fs"

    def derived(self) -> dict[str, str]:
        """U for a gate of the shared expert, Er for further choices of the router."""
        there = {"U": self.shared_gate, "Er": self.idle is not None}
        return {axis: made for axis, made in self.made.items() if there.get(axis, True)}

    def lines(self, at: str) -> Iterator[Line]:
        """Router, experts, and shared expert."""
        if self.shared_first:
            yield from self._shared_lines(at)
        yield from self._routed_lines(at)
        if not self.shared_first:
            yield from self._shared_lines(at)
        if self.shared_width is None:
            return
        if self.shared_gate:
            yield Matmul(f"{at}.shared_gate", "B T D, D U -> B T U")
            yield Pointwise(f"{at}.shared_weighting", "B T D", kind="weighting")
        yield Pointwise(f"{at}.shared_add", "B T D", kind="sum")

    def _shared_lines(self, at: str) -> Iterator[Line]:
        if self.shared_width is None:
            return
        yield from self._norm(f"{at}.shared_norm")
        yield from projections(
            f"{at}.shared", self.shared_axis, gated=self.gated, bias=self.shared_bias, function=self.activation
        )
        yield from self._norm(f"{at}.shared_post_norm")

    def _routed_lines(self, at: str) -> Iterator[Line]:
        choices = "E" if self.idle is None else "Er"
        scales, biases = "" if self.norms is None else "E", "E" if self.choice_bias else ""
        yield from self._norm(f"{at}.router_norm")
        yield from self._router(f"{at}.router", choices)
        yield Pointwise(f"{at}.routing", f"B T {choices}", weight=scales, bias=biases, kind="routing")
        yield from self._norm(f"{at}.experts_norm")
        yield from self._token_lines(at)
        yield from self._norm(f"{at}.experts_post_norm")
        if self.others is not None:
            yield from self._unused_expert_lines(f"{at}.others")

    def _norm(self, at: str) -> Iterator[Line]:
        if self.norms is not None:
            yield Pointwise(at, "B T D", weight="D", kind="norm_rms")

    def _router(self, at: str, choices: str) -> Iterator[Line]:
        yield Matmul(at, f"B T D, D {choices} -> B T {choices}", bias=self.bias)

    def _unused_expert_lines(self, at: str) -> Iterator[Line]:
        """Stored tensors of the experts that text tokens never use."""
        yield Unused(Matmul(f"{at}.router", "B T D, D E -> B T E", bias=self.bias))
        if self.choice_bias:
            yield Unused(Pointwise(f"{at}.routing", "B T E", bias="E"))
        for name in ("gate_proj", "up_proj") if self.gated else ("up_proj",):
            yield Unused(Matmul(f"{at}.experts.{name}", "B T A D, D Fo -> B T A Fo", bias=self.bias, expert_axis="E"))
        yield Unused(Matmul(f"{at}.experts.down_proj", "B T A Fo, Fo D -> B T A D", bias=self.bias, expert_axis="E"))

    def _token_lines(self, at: str) -> Iterator[Line]:
        """Experts of a token and weighting, with the latent projections, if any."""
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
