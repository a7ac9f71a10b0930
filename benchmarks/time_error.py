"""Errors of `tfacct time` and `tfacct serve` on measured points: python benchmarks/time_error.py FOLDER

FOLDER has measured runs, none of which is part of the project. `measured` reads runs of serving engines; its docstring
names their files. training.csv has steps under FSDP.

Each cell (device × model × engine × weights) is predicted by constants fitted to all other cells. The exit code is 1 if
an error is above its limit, or differs from tfacct/timing/validated.toml.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log
from pathlib import Path
from statistics import fmean

import numpy as np
import peers
from errors import HEAD, checked, line, named, tables
from fitting import SERVING, Array, held_out
from measured import Run, read
from speculative import speculative
from training_error import divided, recent, training

from tfacct.timing.kernel_time import CONSTANTS, Constants
from tfacct.timing.validated import ENOUGH, FEW, FIRST_TOKEN, STORED, VALIDATED, Class, Metric

RIDGE = 6.0
"""Ridge of the fit: changing a constant by a factor of e costs as much as this error in the logarithm of one row."""
HALF = ("throughput 0.14", "throughput 0.9", "throughput 1.0", "first token")
"""Sources whose runs have half the weight, because their batch follows from a rule or the runs are few."""
GUESSED = "concurrency from batch"
"""Flag of runs of which only the largest number of sequences is known, not the actual one."""
CLASSES: tuple[Class, ...] = ("dense", "experts")
METRICS: tuple[Metric, ...] = ("request", "token", "corrected")


class Points:
    """Measured seconds of runs, one or two points for each run, and their predictions."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        every = [(run, name) for run in runs for name in run.seconds]
        self.measures = np.array([name for _, name in every])
        self.cells = np.array([run.cell for run, _ in every])
        self.of = [run for run, _ in every]
        self.weights = np.array([run.fitted / (1 + (len(run.seconds) > 1 or run.source in HALF)) for run, _ in every])

    def logs(self, constants: Constants) -> Array:
        """Logarithms of predicted over measured."""
        each = ((run.predicted(constants), run.seconds) for run in self.runs)
        return np.array([log(predicted[name] / seconds[name]) for predicted, seconds in each for name in seconds])

    def where(self, wanted: Callable[[Run], bool], measure: str = "") -> Array:
        """True for the points of wanted runs with this measure, by default the main measure of the run."""
        names = zip(self.of, self.measures, strict=True)
        return np.array([wanted(run) and name == (measure or run.main) for run, name in names])

    def groups(self, chosen: Array, name: str) -> Array:
        """Device, engine or dtype of the chosen points."""
        return np.array([run.groups[name] for run, yes in zip(self.of, chosen, strict=True) if yes])

    def devices(self, chosen: Array) -> list[str]:
        """Devices of the chosen points."""
        return [str(name) for name in self.groups(chosen, "device")]


def sets(runs: Sequence[Run]) -> dict[str, Callable[[Run], bool]]:
    """Runs that are reported together, by name."""
    found: dict[str, Callable[[Run], bool]] = {}
    for source in dict.fromkeys(run.source for run in runs):
        for kind in dict.fromkeys(run.kind for run in runs):
            found[f"{source}, {kind}"] = partial(_belongs, source=source, kind=kind)
    found["throughput 0.14, dense, 8 by NVLink"] = lambda run: (
        run.source == "throughput 0.14"
        and run.kind == "dense"
        and run.groups["devices"] == "8"
        and run.groups["link"] == "domain"
    )
    found["throughput 0.14, dense, over PCIe"] = lambda run: (
        run.source == "throughput 0.14" and run.kind == "dense" and run.groups["link"] == "node"
    )
    for source in ("requests", "new models"):
        found[f"{source}, flagged"] = partial(_is_flagged, source=source)
    return found


def _is_flagged(run: Run, source: str) -> bool:
    return run.source == source and bool(run.flag)


def _belongs(run: Run, source: str, kind: Class) -> bool:
    return run.source == source and not run.flag and run.kind == kind


def serving(folder: Path) -> list[str]:
    """Errors of serving."""
    runs, left_out = read(folder)
    print(f"\n{len(runs):,} runs of serving engines; not included: {len(left_out)}")
    for reason, times in sorted(Counter(left_out).items()):
        print(f"  {times} × {reason}")
    points = Points(runs)
    is_named = named([run for run in runs if run.source == "requests" and not run.flag], CLASSES)
    now, constants = points.logs(CONSTANTS), CONSTANTS
    errors = now
    if is_named:
        errors, constants = held_out(points.logs, CONSTANTS, SERVING, points.cells, points.weights, RIDGE)
    how = "each cell held out" if is_named else "other runs than in validated.toml, constants unchanged"
    for title, left in {f"seconds, {how}": errors, "seconds, constants unchanged": now}.items():
        print(f"\n{title}\n{HEAD}")
        for name, wanted in sets(runs).items():
            if (chosen := points.where(wanted)).any():
                print(line(name, left[chosen]))
    print("fit to all:", ", ".join(f"{name} {getattr(constants, name):.3g}" for name in SERVING))
    below = fmean(run.bound for run in runs if run.flag != GUESSED)
    print(f"lower bound below the measured time: {100 * below:.2f}%")
    broken = [] if below > 0.999 else ["a lower bound is above the measured time"]
    for kind in CLASSES:
        broken += _of_class(points, kind, errors)
    for name, wanted in OTHERS.items():
        if is_named and (chosen := points.where(wanted)).any():
            broken += checked(name, "request", errors[chosen], points.cells[chosen], points.devices(chosen))
    if is_named and (chosen := points.where(partial(_belongs, source="disaggregated decode", kind="experts"))).any():
        broken += checked("experts", "decode", errors[chosen], points.cells[chosen], points.devices(chosen))
    for kind in CLASSES:
        formats = Counter(run.groups["dtype"] for run in runs if run.fitted and run.kind == kind)
        if is_named and formats != STORED[kind]:
            broken.append(f"{kind}: runs by format are {dict(formats)}")
    return broken + (_first_tokens(runs) if is_named else [])


def _first_tokens(runs: Sequence[Run]) -> list[str]:
    """How `FIRST_TOKEN` differs from the measured runs."""
    found: dict[str, dict[str, list[int]]] = {}
    for kind in FIRST_TOKEN:
        high, times = VALIDATED[kind, "request"].high, dict[str, list[bool]](few=[], many=[])
        for run in runs:
            if run.kind == kind and run.first_token is not None and not run.flag:
                served = run.loop.served()
                last = high * (run.loop.requests * served.prompt + CONSTANTS.request)
                times["few" if run.loop.requests <= FEW else "many"].append(run.first_token <= last)
        found[kind] = {name: [len(each), sum(each)] for name, each in times.items()}
    print("\nfirst tokens: runs, and those within the upper end of the range:", found)
    return [] if found == FIRST_TOKEN else ["FIRST_TOKEN differs from the measured runs"]


OTHERS: Mapping[Class, Callable[[Run], bool]] = {
    "recurrent": partial(_belongs, source="new models", kind="recurrent"),
    "indexed": partial(_belongs, source="new models", kind="indexed"),
    "pcie": lambda run: run.source == "throughput 0.14" and run.groups["link"] == "node",
    "amd": lambda run: run.source.startswith("MI300X"),
}
"""Runs whose errors are reported separately."""


def _of_class(points: Points, kind: Class, errors: Array) -> list[str]:
    """Print the errors of requests to models of a class, in groups. Returns those above their limits. The interval of a
    request is from all runs without PCIe whose batch is known well enough."""
    broken = []
    wide = points.where(lambda run: run.fitted and run.kind == kind and run.groups["link"] != "node")
    for metric in METRICS:
        chosen = points.where(
            partial(_belongs, source="requests", kind=kind), "token" if metric == "token" else "request"
        )
        if not chosen.any():
            continue
        if metric == "corrected":
            left = corrected(errors[chosen], points.cells[chosen])
            print(line(f"{kind}: time of a request, corrected by {ENOUGH} other runs", left))
            broken += checked(kind, metric, left, points.cells[chosen], points.devices(chosen))
            continue
        by = {name: points.groups(chosen, name) for name in ("device", "engine", "dtype")}
        by |= {"cell": points.cells[chosen]} if metric == "request" else {}
        tables(f"{kind}: time of a {metric}", errors[chosen], by)
        others, cells = wide if metric == "request" else chosen, points.cells
        broken += checked(
            kind, metric, errors[chosen], cells[chosen], points.devices(chosen), errors[others], cells[others]
        )
        if metric == "token":
            high = VALIDATED[kind, metric].high
            print(f"above the upper end: {100 * (np.exp(-errors[chosen]) > high).mean():.1f}% of these runs")
        if metric == "request":
            some = [run for run, yes in zip(points.of, chosen, strict=True) if yes]
            print("two simpler estimates of a request:")
            peers.compared([run.loop for run in some], [run.seconds["request"] for run in some], points.cells[chosen])
    return broken


def corrected(left: Array, cells: Array) -> Array:
    """Logarithms of runs corrected as by `--measured`, each with other runs of its cell, drawn at random."""
    draw, found = np.random.default_rng(0), np.zeros(len(left))
    for cell in np.unique(cells):
        chosen = np.flatnonzero(cells == cell)
        for at in chosen:
            others = draw.choice(chosen[chosen != at], ENOUGH, replace=False)
            found[at] = left[at] - left[others].sum() / (ENOUGH + 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    broken = divided()
    if not (folder / "serving.csv").exists():
        print(
            f"time_error: no measured points at {folder}, so no estimate of time is validated"
            " except that of these steps"
        )
        sys.exit(bool(broken))
    broken += serving(folder)
    if (folder / "speculative.csv").exists():
        broken += speculative(folder / "speculative.csv")
    if (folder / "training.csv").exists():
        broken += training(folder / "training.csv")
    if (folder / "training_recent.csv").exists():
        broken += recent(folder / "training_recent.csv")
    print("\n".join(["", *(broken or ["all errors within their limits"])]))
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
