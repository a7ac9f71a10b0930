"""Bytes of serving a model, derived from its ledger, and the largest size that still fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tfacct.base.record import record
from tfacct.ledger.einsum import Axes, size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul, Pointwise
from tfacct.ledger.storage import Storage, Width


@record
class Footprint:
    """Bytes of the weights and of everything kept between steps.

    `per_token`: bytes that the first token of one sequence adds. A state of fixed size and the keys and values of a
    source add none.
    """

    weights: Any
    cache: Any
    per_token: Any

    @property
    def total(self) -> Any:
        """Bytes of weights and cache together."""
        return self.weights + self.cache


def footprint(ledger: Ledger, at: Axes, weights: Storage, cache: Width) -> Footprint:
    """Bytes that a model holds at the end of the step `at`, with weights and cache stored as given."""
    return Footprint(
        weights=sum(ledger.weight_bytes(weights).values()),
        cache=cache_bytes(ledger, at, cache),
        per_token=token_bytes(ledger, at, cache),
    )


def cache_bytes(ledger: Ledger, at: Axes, cache: Width) -> Any:
    """Bytes of everything kept between steps, at the end of the step `at`."""
    return sum(ledger.state_bytes(at, cache).values())


def token_bytes(ledger: Ledger, at: Axes, cache: Width) -> Any:
    """Bytes that the first token of one sequence adds to what is kept."""
    empty, one = (cache_bytes(ledger, {**at, "B": 1, "S": keys}, cache) for keys in (0, 1))
    return one - empty


def next_token_bytes(ledger: Ledger, at: Axes, cache: Width) -> Any:
    """Bytes that one more token of one sequence adds to what is kept at the end of the step `at`.

    A full window adds nothing.
    """
    now, then = (cache_bytes(ledger, {**at, "B": 1, "S": keys}, cache) for keys in (at["S"], at["S"] + 1))
    return then - now


def largest_that_fits(cost: Callable[[int], int], budget: int, limit: int) -> int:
    """Largest n from 0 to `limit` with cost(n) ≤ budget. The cost must not fall as n grows; cost(0) is not asked.

    The search asks the ledger instead of inverting a formula, so it is exact for every kind of state and rounding.
    """
    low, high = 0, 1
    while high <= limit and cost(high) <= budget:
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return low


def working_bytes(ledger: Ledger, at: Axes, weights: Storage, results: Width, *, train: bool) -> Any:
    """Estimated bytes that an unfused pass needs beside weights and cache, to refuse what cannot fit.

    Inference is taken to hold four of its largest results at once. Training keeps every result of every block, and a
    gradient for each weight. An estimate of ours, not a count.
    """
    made = list(_results(ledger, at))
    largest = max(elements for elements, _ in made)
    if not train:
        return results.bytes(4 * largest)
    kept = sum(elements * count for elements, count in made)
    return results.bytes(kept + 4 * largest) + sum(ledger.weight_bytes(weights).values())


def _results(ledger: Ledger, at: Axes) -> Iterator[tuple[Any, Any]]:
    """Number of elements of each result that is computed, with the number of blocks that compute it."""
    for group in ledger.groups:
        axes = {**group.bound(at), **at}
        for line in group.lines:
            if isinstance(line, Matmul):
                yield size(axes, line.einsum.out), group.count
            elif isinstance(line, Pointwise):
                yield line.elements(axes), group.count
