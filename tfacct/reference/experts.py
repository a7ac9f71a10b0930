"""The reference model's experts: a router, the weights of all experts, and a shared expert.

Routing is fixed and balanced, round-robin, so that every shape is known in advance. The router runs and its scores are
used as weights, but it does not select experts. This replaces the top-k routing of published models (Shazeer et al.,
arXiv 1701.06538, section 2.1) only here. No count depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.modules import (
    Activation,
    Add,
    FeedForward,
    Linear,
    RMSNorm,
    ScaledFirst,
    Times,
    Unused,
    Work,
    through,
)
from tfacct.reference.part_module import PartModule
from tfacct.reference.step import Step


class Stored(nn.Module):
    """The weights of experts that never run."""

    def __init__(self, experts: int, rows: int, columns: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, rows, columns))
        self.bias = nn.Parameter(torch.empty(experts, columns)) if bias else None


class ExpertLinear(Stored):
    """Matmul of each row with the weight of its expert, for rows of shape (batch, tokens, experts of a token, size).

    Row i belongs to expert i mod E. Full rounds are one batched matmul over all experts; the remaining rows are one
    over the first few.
    """

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, active, size = x.shape
        experts, _, columns = self.weight.shape
        count = batch * tokens * active
        rounds, left = count // experts, count % experts
        rows = x.reshape(count, size)
        results = []
        if rounds:
            in_rounds = rows[: rounds * experts] if left else rows
            each = in_rounds.view(rounds, experts, size).transpose(0, 1) @ self.weight
            if self.bias is not None:
                each = each + self.bias.unsqueeze(1)
            results.append(each.transpose(0, 1).reshape(rounds * experts, columns))
        if left:
            each = rows[rounds * experts :].unsqueeze(1) @ self.weight[:left]
            results.append(each.squeeze(1) if self.bias is None else each.squeeze(1) + self.bias[:left])
        return (results[0] if len(results) == 1 else torch.cat(results)).view(batch, tokens, active, columns)


SCORINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": partial(torch.softmax, dim=-1),
    "sigmoid": torch.sigmoid,
    "sqrtsoftplus": lambda scores: torch.sqrt(nn.functional.softplus(scores)),
}
"""Activations by config name; an unknown name stands for any."""


class Routing(Work):
    """Routing weights from the router's scores. A bias per expert affects only the selection, not the weights."""

    def __init__(self, part: parts.Experts) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(part.experts), requires_grad=False) if part.choice_bias else None
        self.weight = None if part.norms is None else nn.Parameter(torch.empty(part.experts))
        self.scoring = part.scoring if part.scoring in SCORINGS else "softmax"

    def forward(self, scores: Tensor) -> Tensor:
        weights = SCORINGS[self.scoring](scores)
        return weights if self.weight is None else weights * self.weight


class ExpertMLPs(nn.Module):
    """The MLPs of all experts."""

    def __init__(self, part: parts.Experts) -> None:
        super().__init__()
        size = part.hidden if part.latent is None else part.latent
        self.gate_proj = ExpertLinear(part.experts, size, part.width, part.bias) if part.gated else None
        self.up_proj = ExpertLinear(part.experts, size, part.width, part.bias)
        self.act = Activation(part.activation, part.bound)
        self.down_proj = ExpertLinear(part.experts, part.width, size, part.bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = None if self.gate_proj is None else self.gate_proj(x)
        return self.down_proj(self.act(self.up_proj(x), gate))


class Shifted(Work):
    """The sum of a token's experts, plus a bias."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(hidden))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class UnusedExperts(nn.Module):
    """Experts without tokens: their weights, and those of their router."""

    def __init__(self, part: parts.Experts, width: Any) -> None:
        super().__init__()
        self.router = Unused(part.hidden, part.experts, bias=part.bias)
        if part.choice_bias:
            self.routing = Routing(part)
        into, out = (part.experts, part.hidden, width), (part.experts, width, part.hidden)
        sizes = {"gate_proj": into, "up_proj": into, "down_proj": out}
        there = {name: size for name, size in sizes.items() if part.gated or name != "gate_proj"}
        self.experts = nn.ModuleDict({name: Stored(*size, part.bias) for name, size in there.items()})


class Experts(PartModule):
    """Every token through some experts, weighted and summed, and through the shared expert."""

    takes = ("step",)

    def __init__(self, part: parts.Experts) -> None:
        super().__init__()
        self.active, self.scaling, self.count = part.active, part.scaling, part.experts
        self.late = part.late
        self.shared_first = part.shared_first and part.shared_width is not None
        self.others = None if part.others is None else UnusedExperts(part, part.others)
        choices = part.experts if part.idle is None else part.experts + part.idle
        self.router: nn.Module = Linear(part.hidden, choices, bias=part.bias)
        self.routing = Routing(part)
        self.experts, self.weighting = ExpertMLPs(part), Times()
        self.sum = Shifted(part.hidden) if part.sum_bias else None
        self.router_norm = self.experts_norm = self.experts_post_norm = self.shared_norm = self.shared_post_norm = None
        if part.norms is not None:
            self.router_norm, self.experts_norm, self.experts_post_norm, self.shared_norm, self.shared_post_norm = (
                RMSNorm(part.hidden, part.norms) for _ in range(5)
            )
        self.root = part.hidden**-0.5
        self.latent_down = self.latent_up = None
        if part.latent is not None:
            self.latent_down = Linear(part.hidden, part.latent, bias=part.shared_bias)
            self.latent_up = Linear(part.latent, part.hidden, bias=part.shared_bias)
        self.latent_norm = self.result_norm = None
        if part.latent_norms is not None:
            latent: Any = part.latent
            self.latent_norm = RMSNorm(latent, part.latent_norms[0], less_one=True)
            self.result_norm = ScaledFirst(latent, part.latent_norms[1])
        self.shared = None
        if part.shared_width is not None:
            mlp = parts.FeedForward(
                hidden=part.hidden,
                width=part.shared_width,
                gated=part.gated,
                bias=part.shared_bias,
                activation=part.activation,
            )
            self.shared = FeedForward(mlp)
            self.shared.act = Activation(part.activation, part.bound)
            self.shared_gate = Linear(part.hidden, 1, bias=False) if part.shared_gate else None
            self.shared_weighting = Times() if part.shared_gate else None
            self.shared_add = Add()

    def forward(self, x: Tensor, step: Step) -> Tensor:
        batch, tokens, _ = x.shape
        first = self._shared(x) if self.shared_first else None
        read = x if self.router_norm is None else self.router_norm(x) * self.root
        scores = self.routing(self._scores(read, step))
        turns = torch.arange(batch * tokens * self.active, device=x.device).view(batch, tokens, self.active)
        weights = torch.gather(scores, 2, turns % self.count).unsqueeze(3)
        if self.scaling is not None:
            weights = weights / weights.sum(dim=2, keepdim=True) * self.scaling
        read = through(self.experts_norm, x)
        read = through(self.latent_down, read)
        read = through(self.latent_norm, read)
        sent = read.unsqueeze(2).expand(batch, tokens, self.active, read.shape[2])
        made = self.experts(sent)
        made = through(self.result_norm, made)
        out: Tensor = self.weighting(made, weights).sum(dim=2)
        out = through(self.sum, out)
        out = through(self.latent_up, out)
        out = through(self.experts_post_norm, out)
        if self.shared is None:
            return out
        shared = self._shared(x) if first is None else first
        if self.late:
            step.late = (self.shared_add, out)
            return shared
        return self.shared_add(out, shared)

    def _shared(self, x: Tensor) -> Tensor:
        """Result of the shared expert."""
        assert self.shared is not None
        shared: Tensor = self.shared(through(self.shared_norm, x))
        shared = through(self.shared_post_norm, shared)
        if self.shared_gate is not None and self.shared_weighting is not None:
            shared = self.shared_weighting(shared, torch.sigmoid(self.shared_gate(x)))
        return shared

    def _scores(self, x: Tensor, step: Step) -> Tensor:  # noqa: ARG002
        """Scores of the router."""
        return self.router(x)
