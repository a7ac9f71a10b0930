"""Memory to serve a model: weights, KV cache, and the largest context or batch that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfacct.ledger.einsum import Axes, size
from tfacct.ledger.groups import CACHED_KEYS, Ledger
from tfacct.ledger.lines import Matmul, Pointwise
from tfacct.ledger.storage import Storage, Width


def cache_bytes(ledger: Ledger, at: Axes, cache: Width) -> Any:
    """Bytes of KV cache and recurrent states at the end of the step `at`."""
    return sum(ledger.state_bytes(at, cache).values())


def unwindowed_cache_bytes(ledger: Ledger, at: Axes, cache: Width) -> Any:
    """Bytes of the cache in an engine that caches all tokens also in layers with a sliding window.

    With compressed tokens, the window is part of the compression and still applies.
    """
    return cache_bytes(ledger, at if ledger.period > 1 else {**at, CACHED_KEYS: at["S"]}, cache)


def token_bytes(ledger: Ledger, at: Axes, cache: Width) -> Any:
    """Bytes that the first token of a sequence adds to the cache."""
    empty, one = (cache_bytes(ledger, {**at, "B": 1, "S": keys}, cache) for keys in (0, 1))
    return one - empty


def next_token_bytes(ledger: Ledger, at: Axes, cache: Width) -> Any:
    """Bytes that one more token of a sequence adds to the cache after the step `at`: 0 if all windows are full."""
    now, then = (cache_bytes(ledger, {**at, "B": 1, "S": keys}, cache) for keys in (at["S"], at["S"] + 1))
    return then - now


def largest_that_fits(cost: Callable[[int], int], budget: int, limit: int) -> int:
    """Largest n from 0 to `limit` with cost(n) ≤ budget. The cost must not fall with n; cost(0) is not evaluated.

    The search evaluates the ledger instead of inverting a formula, so it is exact for all states and rounding. Most
    costs are nearly quadratic, so a parabola through three costs predicts where to search.
    """
    low, high, trials = 0, 1, list[tuple[int, int]]()

    def tried(n: int) -> bool:
        nonlocal low, high
        at_n = cost(n)
        trials.append((n, at_n))
        if at_n <= budget:
            low = n
        else:
            high = n
        return at_n <= budget

    while high <= limit and tried(high):
        high = GROWTH * low
    high = min(high, limit + 1)
    near = _parabola_estimate(trials[-3:], budget, low, high)
    if low < near < high:
        fits = tried(near)
        step = 1 if fits else -1
        while low < near + step < high and tried(near + step) is fits:
            step *= GROWTH
    while high - low > 1:
        tried((low + high) // 2)
    return low


GROWTH = 8
"""Factor of the next trial while it fits."""


def _parabola_estimate(trials: Sequence[tuple[int, int]], budget: int, low: int, high: int) -> int:
    """Estimate of the largest n between `low` and `high` within the budget, from a parabola.

    The parabola goes through three costs; with fewer, the result is `low`. It only directs the search and need not be
    exact.
    """
    if len(trials) < 3:
        return low
    least = low + 1
    (one, first), (two, second), (three, third) = trials
    slope, later = (second - first) / (two - one), (third - second) / (three - two)
    bend = (later - slope) / (three - one)
    while high - low > 1:
        middle = (low + high) // 2
        estimate = first + (middle - one) * (slope + bend * (middle - two))
        low, high = (middle, high) if estimate <= budget else (low, middle)
    return max(low, least)


def working_bytes(ledger: Ledger, at: Axes, weights: Storage, results: Width, *, train: bool) -> Any:
    """Estimated bytes that an unfused pass needs in addition to weights and cache, to reject runs that cannot fit.

    Inference: four of the largest results at once. Training: all results of all layers, and a gradient for each weight.
    This is an estimate, not a count.
    """
    computed = list(_results(ledger, at))
    largest = max(elements for elements, _ in computed)
    if not train:
        return results.bytes(4 * largest)
    cached = sum(elements * count for elements, count in computed)
    return results.bytes(cached + 4 * largest) + sum(ledger.weight_bytes(weights).values())


def _results(ledger: Ledger, at: Axes) -> Iterator[tuple[Any, Any]]:
    """Elements of each result, with the number of layers that compute it."""
    for group in ledger.groups:
        axes = {**group.bound(at), **at}
        for line in group.lines:
            if isinstance(line, Matmul):
                yield size(axes, line.einsum.out), group.count
            elif isinstance(line, Pointwise):
                yield line.elements(axes), group.count
