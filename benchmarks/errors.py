"""Tables of errors, and which of them are above their limits: for time_error.py and training_error.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from fitting import Array, covered, interval, share_inside

from tfacct.loading import devices
from tfacct.timing.validated import VALIDATED, Class, Metric, Validation

DEVICES = {
    "h100": "h100-sxm",
    "h200": "h200-sxm",
    "b200": "b200-hgx",
    "b300": "b300-hgx",
    "a100": "a100-sxm-80gb",
    "a100_40gb": "a100-sxm-40gb",
    "a100_80gb": "a100-sxm-80gb",
    "h100_80gb": "h100-sxm",
    "rtxpro6000": "rtx-pro-6000",
}
NEAR = 0.2


@cache
def device(name: str) -> devices.Device:
    plain = name.removesuffix("_sxm")
    return devices.load(DEVICES.get(plain, plain))


def line(what: str, left: Array) -> str:
    off = np.abs(np.exp(left) - 1)
    near = 100 * (off <= NEAR).mean()
    return (
        f"{what:44} {len(left):5} {100 * np.median(off):7.1f} {100 * np.quantile(off, 0.9):7.1f} {near:7.1f}"
        f" {np.exp(np.median(left)):6.2f}"
    )


HEAD = f"{'':44} {'runs':>5} {'median%':>7} {'p90%':>7} {'<=20%':>7} {'bias':>6}"


def tables(title: str, left: Array, groups: dict[str, Array]) -> None:
    print(f"\n{title}\n{HEAD}")
    print(line("all", left))
    for kind, names in groups.items():
        for name in np.unique(names):
            print(line(f"{kind} {name}", left[names == name]))


LIMITS: Mapping[Class, tuple[float, float]] = {
    "dense": (0.075, 0.84),
    "experts": (0.1, 0.83),
    "recurrent": (0.16, 0.65),
    "indexed": (0.20, 0.6),
    "pcie": (0.20, 0.6),
    "amd": (0.12, 0.75),
    "training": (0.08, 0.9),
    "divided": (0.13, 0.9),
}
"""Largest median error of held-out cells, and their least share of runs within 20%."""


def checked(
    kind: Class,
    metric: Metric,
    left: Array,
    cells: Array,
    by: Sequence[str],
    others: Array | None = None,
    other_cells: Array | None = None,
) -> list[str]:
    """Errors above their limits, and errors that differ from the published ones. The interval is that of `others`, by
    default these runs. If these are not the runs of `VALIDATED`, it is the published interval."""
    published, off = VALIDATED[kind, metric], np.abs(np.exp(left) - 1)
    on = {name: list(by).count(name) for name in sorted(set(by))}
    known = published.on == on
    others, other_cells = (left, cells) if others is None or other_cells is None else (others, other_cells)
    low, high = interval(others, other_cells) if known else (published.low, published.high)
    inside = covered(left, cells, others, other_cells) if known else share_inside(left, cells, low, high)
    near, median, broken = float((off <= NEAR).mean()), float(np.median(off)), []
    found = Validation(kind, metric, len(set(cells)), on, median, inside, low, high)
    print(f"{kind} {metric}: 80% interval x {low:.2f} to {high:.2f}, covers {100 * inside:.1f}%, mean over cells")
    most, least = LIMITS[kind]
    if median > most or near < least or not 0.7 <= round(inside, 2) <= 0.9:
        broken.append(f"{kind} {metric} is outside its limits")
    shares = zip(
        (published.median, published.coverage, published.low, published.high),
        (found.median, found.coverage, found.low, found.high),
        strict=True,
    )
    if not known and published.runs != len(left):
        print(f"these are not the {published.runs} runs of VALIDATED: {found}")
    if known and any(abs(one - other) > 0.0051 for one, other in shares):
        broken.append(f"{kind} {metric} is no longer {published}, but {found}")
    return broken


def named(rows: Sequence[Any], classes: Sequence[Class]) -> bool:
    """True if there are as many runs as in `VALIDATED`. Constants are refitted only to those."""
    return len(rows) == sum(VALIDATED[kind, "step" if kind == "training" else "request"].runs for kind in classes)
