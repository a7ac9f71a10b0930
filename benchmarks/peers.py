"""Two simpler estimates of the same runs: a plain roofline, and two constant utilizations.

Both compute a request as users · prefill + new · decode, as `serve` does; only the seconds of a step differ. A step of
the roofline takes the longer of two times: FLOPs at the peak; weights and cache at the bandwidth. Tokens are routed
evenly to experts. The second estimate divides the rooflines of prefill and decode by a utilization each. A cell is
predicted by the pair that fits all other cells best; all cells have the same weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from errors import line
from fitting import Array

from tfacct.timing.kernel_time import CONSTANTS, Step
from tfacct.timing.serving import Loop

EVEN = replace(CONSTANTS, popularity=1e9)
SHARES = np.linspace(0.05, 1.0, 39)


def parts(loop: Loop) -> tuple[float, float]:
    """Seconds of all prompts and of all new tokens at the peaks."""
    served = loop.served(EVEN)
    prefill, decode = (_at_peaks(step, loop.device.bandwidth) for step in (served.prefill, served.decode))
    return loop.requests * prefill / loop.prompts, loop.new * decode


def _at_peaks(step: Step, bandwidth: float) -> float:
    products = (one for one in step.kernels if one.kernel.kind in ("gemm", "experts", "attention"))
    return max(step.compute, sum(one.bytes - one.kernel.moved for one in products) / bandwidth)


def best(both: Array, measured: Array, cells: Array) -> tuple[float, float]:
    """Utilizations of prefill and decode that fit these runs best."""
    weights = np.array([1 / (cells == cell).sum() for cell in cells])
    found = (np.inf, 1.0, 1.0)
    for prefill in SHARES:
        off = np.abs(np.log((both[:, :1] / prefill + both[:, 1:] / SHARES) / measured[:, None]))
        loss = (off * weights[:, None]).sum(axis=0)
        found = min(found, (float(loss.min()), float(prefill), float(SHARES[loss.argmin()])))
    return found[1], found[2]


def compared(loops: Sequence[Loop], seconds: Sequence[float], cells: Array) -> None:
    """Print the errors of both estimates on these runs."""
    both, measured = np.array([parts(loop) for loop in loops]), np.array(seconds)
    print(line("a plain roofline", np.log(both.sum(axis=1) / measured)))
    errors = np.zeros(len(measured))
    for cell in np.unique(cells):
        in_cell = cells == cell
        prefill, decode = best(both[~in_cell], measured[~in_cell], cells[~in_cell])
        errors[in_cell] = np.log((both[in_cell, 0] / prefill + both[in_cell, 1] / decode) / measured[in_cell])
    prefill, decode = best(both, measured, cells)
    print(line(f"constant utilizations (all: {prefill:.2f}, {decode:.2f})", errors))
