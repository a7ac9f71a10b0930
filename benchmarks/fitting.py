"""Constants fitted with whole cells left out, and intervals of what is left: for time_error.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
FIXED = ("prompt", "budget", "host", "request", "attention_prefill", "attention", "link_network")
"""Constants that these runs do not tell."""
READ = {"MegatronConstants": ("link", "reduce", "card")}
"""The same of constants of another kind."""
Logs: TypeAlias = Callable[[Sequence[Any], Any], Array]
"""Logarithms of predicted over measured, by rows and constants."""


def fields(constants: Any) -> list[str]:
    fixed = READ.get(type(constants).__name__, FIXED)
    return [one.name for one in dataclasses.fields(constants) if one.name not in fixed]


def slopes(rows: Sequence[Any], start: Array, logs: Logs, constants: Any) -> Array:
    """Change of the logarithms with that of each constant: rows × metrics × constants."""
    small, each = 0.02, []
    for name in fields(constants):
        moved = replace(constants, **{name: getattr(constants, name) * exp(small)})
        each.append((logs(rows, moved) - start) / small)
    return np.stack(each, axis=2)


def fitted(start: Array, slope: Array, cells: Array, constants: Any, ridge: float) -> Any:
    """Constants that fit best, all cells counting by the root of their rows; large errors count by their size only."""
    number = np.array([(cells == cell).sum() for cell in cells])
    weight = np.repeat(1 / np.sqrt(number), start.shape[1])
    weight /= weight.mean()
    errors, change = start.reshape(-1), slope.reshape(-1, slope.shape[2])
    move = np.zeros(change.shape[1])
    for _ in range(12):
        left = errors + change @ move
        each = weight / np.sqrt(1 + (left / 0.12) ** 2)
        matrix = (change * each[:, None]).T @ change + ridge**2 * np.eye(len(move))
        move = np.clip(-np.linalg.solve(matrix, (change * each[:, None]).T @ errors), -0.5, 0.5)
    names = fields(constants)
    moved = {name: getattr(constants, name) * exp(by) for name, by in zip(names, move, strict=True)}
    return replace(constants, **moved)


def held_out(rows: Sequence[Any], logs: Logs, constants: Any, ridge: float) -> tuple[Array, Any]:
    """Logarithms where each cell is predicted by a fit to the others; and the fit to all."""
    cells = np.array([row.cell for row in rows])
    start = logs(rows, constants)
    slope = slopes(rows, start, logs, constants)
    found = np.zeros_like(start)
    for cell in np.unique(cells):
        seen = cells != cell
        others = fitted(start[seen], slope[seen], cells[seen], constants, ridge)
        found[~seen] = logs([row for row in rows if row.cell == cell], others)
    return found, fitted(start, slope, cells, constants, ridge)


def quantile(values: Array, weights: Array, share: float) -> float:
    order = np.argsort(values)
    passed = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(passed, share)])


def interval(left: Array, cells: Array) -> tuple[float, float]:
    """Factors between which 80 % of measured times lie, every cell weighing the same."""
    weights = np.array([1 / (cells == cell).sum() for cell in cells])
    return exp(quantile(-left, weights, 0.1)), exp(quantile(-left, weights, 0.9))


def covered(left: Array, cells: Array) -> Array:
    """Whether each measured time lies in the interval of the other cells' errors."""
    inside = np.zeros(len(left), bool)
    for cell in np.unique(cells):
        low, high = interval(left[cells != cell], cells[cells != cell])
        own = np.exp(-left[cells == cell])
        inside[cells == cell] = (low <= own) & (own <= high)
    return inside
