"""Bytes derived from a ledger: what serving a model takes, and what still fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfacct.ledger import Ledger
from tfacct.notation import Axes


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of the weights and of everything kept between steps. `per_token`: for one token of one sequence."""

    weights: Any
    cache: Any
    per_token: Any

    @property
    def total(self) -> Any:
        """Weights and cache together."""
        return self.weights + self.cache


def footprint(ledger: Ledger, at: Axes, bits: int, cache_bits: int) -> Footprint:
    """What `ledger` keeps at the end of the step `at`, with weights and cache of so many bits per element."""

    def cached(step: Axes) -> Any:
        return sum(ledger.state_bytes(step, cache_bits).values())

    return Footprint(
        weights=sum(ledger.weight_bytes(bits).values()),
        cache=cached(at),
        per_token=cached({**at, "B": 1, "S": 1}),
    )


def largest_that_fits(cost: Callable[[int], int], budget: int, limit: int) -> int:
    """The largest n from 0 to `limit` with cost(n) ≤ budget. The cost must not fall as n grows; cost(0) is not asked.

    Asks the ledger itself instead of inverting a formula, so it is exact for every kind of state and rounding.
    """
    low, high = 0, 1
    while high <= limit and cost(high) <= budget:
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return low
