"""Constants fitted with whole cells held out, and intervals from the errors on these cells: for time_error.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp
from typing import Any, TypeAlias

import numpy as np

from tfacct.timing.kernel_time import Constants
from tfacct.timing.training_time import TrainingConstants

Array: TypeAlias = Any


def names(kind: type, *others: str) -> list[str]:
    """Names of the constants without `others`, which the runs do not determine."""
    return [one.name for one in dataclasses.fields(kind) if one.name not in others]


SERVING = names(
    Constants,
    *("prompt", "budget", "request", "attention", "tile", "message", "amd", "pace"),
    *("link_switch", "message_switch", "unpacking", "hop", "hop_large", "flags"),
)
TRAINING = names(TrainingConstants, "attention", "nvfp4", "experts", "card", "reduce")
DIVIDED = ["products", "attention", "pointwise"]
"""Constants that are fitted to runs of serving engines, to steps of MPT, and to steps of Megatron-LM."""
Logs: TypeAlias = Callable[[Any], Array]
"""Logarithms of predicted over measured, by constants."""
STEP = 0.02
"""Change of a constant's logarithm that gives the slopes."""


def slopes(start: Array, logs: Logs, constants: Any, fields: Sequence[str]) -> Array:
    """Slopes of the logarithms by the logarithm of each constant."""
    moved = (replace(constants, **{name: getattr(constants, name) * exp(STEP)}) for name in fields)
    return np.stack([(logs(each) - start) / STEP for each in moved], axis=1)


def fitted(start: Array, slope: Array, weights: Array, constants: Any, fields: Sequence[str], ridge: float) -> Any:
    """Constants that fit best. Large errors count linearly instead of by their square."""
    weights, move = weights / weights[weights > 0].mean(), np.zeros(slope.shape[1])
    for _ in range(12):
        left = start + slope @ move
        each = weights / np.sqrt(1 + (left / 0.12) ** 2)
        matrix = (slope * each[:, None]).T @ slope + ridge**2 * np.eye(len(move))
        move = np.clip(-np.linalg.solve(matrix, (slope * each[:, None]).T @ start), -0.5, 0.5)
    moved = {name: getattr(constants, name) * exp(by) for name, by in zip(fields, move, strict=True)}
    return replace(constants, **moved)


def by_cell(cells: Array) -> Array:
    """Weights of rows that give all cells the same weight."""
    _, where, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return 1 / counts[where]


def held_out(
    logs: Logs, constants: Any, fields: Sequence[str], cells: Array, weights: Array, ridge: float
) -> tuple[Array, Any]:
    """Logarithms with each cell predicted by a fit to the others, and the fit to all cells. No fit uses runs of weight
    0. A cell weighs the square root of its number of rows."""
    start = logs(constants)
    slope, weights = slopes(start, logs, constants, fields), weights * np.sqrt(by_cell(cells))
    all_of_them = fitted(start, slope, weights, constants, fields, ridge)
    found = logs(all_of_them)
    for cell in np.unique(cells[weights > 0]):
        in_cell = cells == cell
        others = fitted(start, slope, weights * ~in_cell, constants, fields, ridge)
        moved = [np.log(getattr(others, name) / getattr(constants, name)) for name in fields]
        found[in_cell] = (start + slope @ np.array(moved))[in_cell]
    return found, all_of_them


SHARE = 0.8
"""Share of the runs of another cell that an interval should contain."""


def interval(left: Array, cells: Array) -> tuple[float, float]:
    """Factors of the 80% interval: it contains the estimate, and 80% of the measured times in another cell.

    The logarithms vary between cells and within them. With few cells, their mean and spread are not well known, so this
    is the prediction interval of a normal variable, by Student's distribution with Welch and Satterthwaite's degrees of
    freedom. All cells have the same weight.
    """
    every = [-left[cells == cell] for cell in np.unique(cells)]
    means = np.array([each.mean() for each in every])
    between = means.var(ddof=1) * (1 + 1 / len(every))
    variance = between + np.mean([each.var() for each in every])
    reach = student((1 + SHARE) / 2, (len(every) - 1) * (variance / between) ** 2) * variance**0.5
    return exp(min(means.mean() - reach, 0.0)), exp(max(means.mean() + reach, 0.0))


def student(share: float, freedom: float) -> float:
    """Quantile of Student's distribution: √freedom · tan x, where the density of x is proportional to cos x to the
    power of freedom − 1.

    >>> round(student(0.9, 1), 2), round(student(0.9, 4), 2)
    (3.08, 1.53)
    """
    angles = np.linspace(-np.pi / 2, np.pi / 2, 200_001)
    passed = np.cumsum(np.cos(angles) ** (freedom - 1))
    return float(freedom**0.5 * np.tan(angles[np.searchsorted(passed, share * passed[-1])]))


def covered(left: Array, cells: Array, others: Array, other_cells: Array) -> float:
    """Share of measured times in the interval from the errors of all other cells. All cells have the same weight."""
    inside = []
    for cell in np.unique(cells):
        ends = interval(others[other_cells != cell], other_cells[other_cells != cell])
        inside.append(share_inside(left[cells == cell], cells[cells == cell], *ends))
    return float(np.mean(inside))


def share_inside(left: Array, cells: Array, low: float, high: float) -> float:
    """Share of measured times between these factors. All cells have the same weight."""
    weights = by_cell(cells)
    return float(((low <= np.exp(-left)) & (np.exp(-left) <= high)) @ weights / weights.sum())
