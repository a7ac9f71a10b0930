"""The same runs by plainer laws, computed here: a plain roofline, and shares of the peaks that never change.

Both take a request as users · prefill + new · decode, as `serve` does, and differ in the seconds of a step. Of these
the roofline takes FLOPs at the peak or weights and cache at the bandwidth, whichever is longer, with experts read as an
even routing would touch them. The constant shares are two, of prefill's roofline and of decode's: each cell is
predicted by the pair that does best on the others, every cell weighing the same.
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
    """Shares of prefill's roofline and of decode's that these runs attain."""
    weights = np.array([1 / (cells == cell).sum() for cell in cells])
    found = (np.inf, 1.0, 1.0)
    for prefill in SHARES:
        off = np.abs(np.log((both[:, :1] / prefill + both[:, 1:] / SHARES) / measured[:, None]))
        loss = (off * weights[:, None]).sum(axis=0)
        found = min(found, (float(loss.min()), float(prefill), float(SHARES[loss.argmin()])))
    return found[1], found[2]


def compared(loops: Sequence[Loop], seconds: Sequence[float], cells: Array) -> None:
    """Prints both on these runs."""
    both, measured = np.array([parts(loop) for loop in loops]), np.array(seconds)
    print(line("a plain roofline", np.log(both.sum(axis=1) / measured)))
    errors = np.zeros(len(measured))
    for cell in np.unique(cells):
        in_cell = cells == cell
        prefill, decode = best(both[~in_cell], measured[~in_cell], cells[~in_cell])
        errors[in_cell] = np.log((both[in_cell, 0] / prefill + both[in_cell, 1] / decode) / measured[in_cell])
    prefill, decode = best(both, measured, cells)
    print(line(f"constant shares, to all {prefill:.2f} and {decode:.2f}", errors))
