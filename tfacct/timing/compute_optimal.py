"""Compute-optimal training: the parameters and tokens that make the most of a number of FLOPs.

All fits are of Hoffmann et al., "Training Compute-Optimal Large Language Models" (arXiv 2203.15556), with C = 6·N·D
FLOPs for N parameters and D tokens. Their approaches 1 and 2 find N and D to grow alike, at about 20 tokens for each
parameter. Their approach 3 fits the loss L = E + A / N^alpha + B / D^beta, whose least at given FLOPs is
N = G · (C / 6)^(beta / (alpha + beta)) with G = (alpha · A / (beta · B))^(1 / (alpha + beta)); E moves no optimum.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from tfacct.base.record import record

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
    "approach 3": LossFit(406.4, 410.7, 0.34, 0.28),
    "refit of 2024": LossFit(482.01, 2085.43, 0.3478, 0.3658),
}
"""As published, and as Besiroglu et al. fitted the same points again, "Chinchilla Scaling: A replication attempt"
(arXiv 2404.10102): the published constants are rounded, and disagree with approaches 1 and 2."""


def parameters(flops: float, tokens_per_parameter: float) -> float:
    """N with so many tokens for each parameter: C = 6 · N · (ratio · N).

    >>> f"{parameters(1e21, 20):.4g}"
    '2.887e+09'
    """
    return sqrt(flops / (FLOPS_PER_PARAMETER * tokens_per_parameter))
