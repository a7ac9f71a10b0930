"""Compute-optimal training (Chinchilla): the best parameters and tokens for a compute budget.

All fits are of Hoffmann et al., "Training Compute-Optimal Large Language Models" (arXiv 2203.15556), with C = 6·N·D
FLOPs for N parameters and D tokens. Their approaches 1 and 2 find N and D to grow alike, at about 20 tokens for each
parameter. Their approach 3 fits the loss L = E + A / N^alpha + B / D^beta, whose least at given FLOPs is
N = G · (C / 6)^(beta / (alpha + beta)) with G = (alpha · A / (beta · B))^(1 / (alpha + beta)); E moves no optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import log, sqrt
from typing import NotRequired, TypedDict

from tfacct.accounts.metrics import Point
from tfacct.base import units
from tfacct.base.record import record
from tfacct.ledger.workload import Request, Workload
from tfacct.loading import presets, selection
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.timing.utilization import flops_per_token

FLOPS_PER_PARAMETER = 6
"""FLOPs of training for each parameter and token: 2 forward, 4 backward."""
TOKENS_PER_PARAMETER = 20
"""Of approaches 1 and 2, rounded as it is usually cited."""


@record
class LossFit:
    """Constants of the fitted loss, without E."""

    a: float
    b: float
    alpha: float
    beta: float

    def parameters(self, flops: float) -> float:
        """N of the least loss at these FLOPs; D is `flops / 6 / N`."""
        exponents = self.alpha + self.beta
        scale = (self.alpha * self.a / (self.beta * self.b)) ** (1 / exponents)
        return float(scale * (flops / FLOPS_PER_PARAMETER) ** (self.beta / exponents))


LOSS_FITS: Mapping[str, LossFit] = {
    "approach 3": LossFit(406.4, 410.7, 0.3392, 0.2849),
    "approach 3, 2024": LossFit(482.01, 2085.43, 0.3478, 0.3658),
}
"""With the exponents of the paper's TeX source, which give its table A3, and as Besiroglu et al. fitted the same points
again, "Chinchilla Scaling: A replication attempt" (arXiv 2404.10102). The exponents in the paper's text, 0.34 and 0.28,
are rounded, and give a fifth fewer parameters."""


def parameters(flops: float, tokens_per_parameter: float) -> float:
    """N with so many tokens for each parameter: C = 6 · N · (ratio · N).

    >>> f"{parameters(1e21, 20):.4g}"
    '2.887e+09'
    """
    return sqrt(flops / (FLOPS_PER_PARAMETER * tokens_per_parameter))


FAMILY = "llama"
"""The family whose sizes are shown where no model is named."""
CONTEXT = 4096
"""Tokens of a training sequence where none is named, as most models are pretrained; fewer where a model has fewer."""


class Spent(TypedDict):
    """Days, device-hours and cost of FLOPs; null without devices or a price."""

    days: float | None
    device_hours: float | None
    cost: float | None


class Trained(TypedDict):
    """Parameters and tokens at a number of tokens per parameter. `basis`: the fit; null for a given ratio. `nearest`:
    the model of the family with the nearest size, and its tokens, if FLOPs are given."""

    tokens_per_parameter: float
    basis: NotRequired[str | None]
    flops: float
    parameters: int
    tokens: int
    nearest: NotRequired[str | None]
    nearest_tokens: NotRequired[int | None]


@record
class Trainer:
    """Devices that train at a stated utilization, with matmuls in `dtype`. `peak`: FLOP/s of one device."""

    limit: MemoryLimit
    words: str
    dtype: str
    peak: int
    mfu: float
    price: float | None

    def needs(self, point: Point) -> str:
        """Bytes of a step under FSDP on each device, in words, where it does not fit even with recomputation."""
        least, usable = least_of_step(point, self.limit.count), self.limit.usable
        needed = units.needed_and_usable(least, usable, " on each device")
        return "" if least <= usable else f"Does not fit on {self.words}: a step under FSDP needs at least {needed}"

    @property
    def flops_of_a_day(self) -> float:
        """FLOPs of all devices."""
        return 86_400 * self.limit.count * self.peak * self.mfu

    def spending(self, flops: float) -> Spent:
        """Days, device-hours and cost of so many FLOPs."""
        days = flops / self.flops_of_a_day
        hours = 24 * self.limit.count * days
        return {"days": days, "device_hours": hours, "cost": None if self.price is None else hours * self.price}


def least_of_step(point: Point, devices: int) -> int:
    """Bytes on each device that a step under FSDP needs with one sequence there, even with recomputation."""
    from tfacct.parallel.mesh import Mesh
    from tfacct.timing.training_time import Trained, least_bytes

    return least_bytes(point.ledger, Trained(replace(point.work, batch=1), Mesh(fsdp=devices), recompute="full"))


def family_sizes(model: LoadedModel | None, ctx: int | None) -> list[LoadedModel]:
    """The sizes on offer: presets of the model's family with a head, and the model."""
    if model is not None and model.family == "custom":
        return [model]
    found = presets.load_all(family=FAMILY if model is None else model.family)
    if model is not None:
        found = [model, *(one for one in found if one.name != model.name)]
    return [one for one in found if one.logits and one.past_positions(_work(one, ctx)) is None]


def _work(model: LoadedModel, ctx: int | None) -> Workload:
    return selection.workload(model, Request(ctx=min(CONTEXT, model.context) if ctx is None else ctx))


def training_point(model: LoadedModel, ctx: int | None) -> Point:
    """A training step of one sequence. Raises UsageError for a context that the model cannot run."""
    work = selection.runnable(model, Request(ctx=_work(model, ctx).context))
    return Point(model.ledger, work, train=True)


def nearest(family: Sequence[LoadedModel], params: float) -> LoadedModel:
    """The member with the nearest number of active parameters, as a ratio."""
    return min(family, key=lambda one: abs(log(sum(one.ledger.active_parameters().values()) / params)))


def bought(flops: float, ratio: float, fit: str, family: Sequence[LoadedModel], ctx: int | None) -> Trained:
    """N and D at a number of tokens per parameter, by 6·N·D; and the nearest member's tokens by its own FLOPs."""
    size = parameters(flops, ratio)
    near = nearest(family, size) if family else None
    return {
        "tokens_per_parameter": ratio,
        "basis": fit or ("approaches 1, 2" if ratio == TOKENS_PER_PARAMETER else None),
        "flops": flops,
        "parameters": round(size),
        "tokens": round(ratio * size),
        "nearest": None if near is None else near.name,
        "nearest_tokens": None if near is None else round(flops / flops_per_token(training_point(near, ctx))),
    }


def trained_on(ratio: float, size: int, each: Fraction) -> Trained:
    """A model trained on a number of tokens per parameter."""
    tokens = round(ratio * size)
    return {"tokens_per_parameter": ratio, "parameters": size, "tokens": tokens, "flops": round(tokens * each)}
