"""Bytes derived from a ledger: what serving a model takes, and what still fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tfacct.ledger import Ledger
from tfacct.lines import Matmul, Pointwise
from tfacct.notation import Axes, size


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of the weights and of everything kept between steps. `per_token`: what the first token of one sequence
    adds, which is nothing to a state of fixed size, without what is kept of a source."""

    weights: Any
    cache: Any
    per_token: Any

    @property
    def total(self) -> Any:
        """Weights and cache together."""
        return self.weights + self.cache


def footprint(ledger: Ledger, at: Axes, bits: int, cache_bits: int) -> Footprint:
    """What `ledger` keeps at the end of the step `at`, with weights and cache of so many bits per element."""
    return Footprint(
        weights=sum(ledger.weight_bytes(bits).values()),
        cache=cache_bytes(ledger, at, cache_bits),
        per_token=token_bytes(ledger, at, cache_bits),
    )


def cache_bytes(ledger: Ledger, at: Axes, bits: int) -> Any:
    """Bytes of everything kept between steps, at the end of the step `at`."""
    return sum(ledger.state_bytes(at, bits).values())


def token_bytes(ledger: Ledger, at: Axes, bits: int) -> Any:
    """Bytes that the first token of one sequence adds to what is kept."""
    empty, one = (cache_bytes(ledger, {**at, "B": 1, "S": keys}, bits) for keys in (0, 1))
    return one - empty


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


def working_bytes(ledger: Ledger, at: Axes, bits: int, *, train: bool) -> Any:
    """About what an unfused pass needs beside weights and cache: an estimate, to refuse what cannot fit.

    Inference holds a few of its largest results at once. Training keeps every result of every block, and a gradient
    beside each weight.
    """
    results = list(_results(ledger, at))
    largest = max(elements for elements, _ in results)
    if not train:
        return 4 * largest * bits // 8
    kept = sum(elements * count for elements, count in results)
    return (kept + 4 * largest) * bits // 8 + sum(ledger.weight_bytes(bits).values())


def _results(ledger: Ledger, at: Axes) -> Iterator[tuple[Any, Any]]:
    """Elements of the result of every line that computes something, and how many blocks have it."""
    for group in ledger.groups:
        axes = {**group.axes, **at}
        for line in group.lines:
            if isinstance(line, Matmul):
                yield size(axes, line.einsum.out), group.count
            elif isinstance(line, Pointwise):
                yield line.elements(axes), group.count
