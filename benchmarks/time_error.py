"""Errors of `tfacct time` and `tfacct serve` on measured points: python benchmarks/time_error.py FOLDER

FOLDER holds measured points, none of which is part of the project:

    serving.csv     model, device, engine, weights, kv_bytes, isl_mean, osl_mean (tokens really sent), concurrency,
                    attn_tp, attn_dp, moe_ep, ttft_ms, tpot_ms, usable (yes, or why a row is left out), cell
    throughput.csv  model, device, gpus, weights, isl, osl, requests, output_tokens_per_s, cell
    training.csv    hidden, heads, layers, ffn, vocab, seq, gpus, device, precision, micro_batch, grad_accum, recompute,
                    tokens_per_s_gpu, mfu_published, cell

Constants are fitted anew with each cell (device × model × engine × weights) left out, so a cell's errors
are those of a prediction that never saw it. The exit code is 1 where an error is above its limit, or no longer what
tfacct/timing/validated.py says.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import peers
from errors import NEAR, checked, device, line, named, tables
from fitting import Array, fields, held_out
from training_error import divided, training

from tfacct.base.errors import TfacctError
from tfacct.ledger.storage import BF16_EACH, Storage, storage, width
from tfacct.loading.find import find
from tfacct.loading.memory_limit import device_limit
from tfacct.loading.model import LoadedModel
from tfacct.timing.kernels import Split
from tfacct.timing.serving import Host, Loop
from tfacct.timing.timing import CONSTANTS, Constants
from tfacct.timing.validated import Class, Metric

MODELS = {"kimi-k2.5": "kimi-k2", "minimax-m2.5": "minimax-m2"}
"""Presets of the same shape, under another name."""
ONLY_EXPERTS = {("kimi-k2.5", "int4")}
"""Checkpoints whose config quantizes the experts alone, where the format takes all matrices."""
RIDGE = 6.0
"""How firmly a fit stays at the constants as they are: the error of a row that moves one by a factor e costs as much as
this, squared."""
CLASSES: tuple[Class, ...] = ("dense", "experts")


class Row(NamedTuple):
    """A measured run, and all that its prediction depends on."""

    id: str
    cell: str
    loop: Loop
    dense: bool
    groups: dict[str, str]
    request: float
    token: float

    @property
    def prompts_first(self) -> bool:
        return self.groups["engine"] == "sglang"


@cache
def model(name: str) -> LoadedModel:
    return find(MODELS.get(name, name))


@cache
def stored(name: str, weights: str) -> Storage:
    every = storage(weights)
    if (name, weights) not in ONLY_EXPERTS:
        return every
    return replace(every, choose=lambda tensor: every.choose(tensor) if tensor.role == "expert" else None)


def read(path: Path) -> tuple[list[Row], list[str]]:
    """Rows that are usable, and why others are not."""
    rows, left = [], []
    for one in csv.DictReader(path.open()):
        if one.get("usable", "yes") != "yes":
            left.append(one["usable"])
            continue
        try:
            rows.append(row_of(one))
        except TfacctError as error:  # a model or device that is not known here, or has no kernels
            left.append(error.message)
    return rows, left


def row_of(one: dict[str, str]) -> Row:
    """A run of serving.csv. Raises TfacctError."""
    loaded, chip = model(one["model"]), device(one["device"])
    experts = loaded.ledger.experts
    split = Split(int(one["attn_tp"]), int(one["attn_dp"]), int(one["moe_ep"]) if experts else 1)
    kept = width("fp8") if float(one["kv_bytes"]) == 1 else BF16_EACH
    host = Host(loaded.ledger, chip, split, stored(one["model"], one["weights"]), BF16_EACH, kept)
    ttft, tpot, new = float(one["ttft_ms"]) / 1e3, float(one["tpot_ms"]) / 1e3, float(one["osl_mean"])
    groups = {"device": chip.id, "engine": one["engine"], "dtype": one["weights"], "model": one["model"]}
    loop = host.loop(int(one["concurrency"]), round(float(one["isl_mean"])), round(new))
    return Row(one["id"], one["cell"], loop, not experts, groups, ttft + (new - 1) * tpot, tpot)


METRICS: dict[Metric, tuple[Callable[[Row, Any], float], Callable[[Row], float]]] = {
    "request": (lambda _, served: served.request, lambda row: row.request),
    "token": (lambda row, served: served.expected_token(row.prompts_first), lambda row: row.token),
}


def logs(rows: Sequence[Row], constants: Constants) -> Array:
    """Logarithm of predicted over measured, a column for each metric."""
    found = []
    for row in rows:
        served = row.loop.served(constants)
        found.append([log(predicted(row, served) / measured(row)) for predicted, measured in METRICS.values()])
    return np.array(found)


def serving(path: Path) -> list[str]:
    rows, left_out = read(path)
    print(f"{path.name}: {len(rows)} runs; left out: {len(left_out)} ({'; '.join(sorted(set(left_out)))})")
    ours = named(rows, CLASSES)
    held, constants = held_out(rows, logs, CONSTANTS, RIDGE) if ours else (logs(rows, CONSTANTS), CONSTANTS)
    how = "each cell held out" if ours else "runs that the project does not name, constants as they stand"
    cells, broken = np.array([row.cell for row in rows]), []
    for kind in CLASSES:
        own = np.array([row.dense is (kind == "dense") for row in rows])
        some = [row for row in rows if row.dense is (kind == "dense")]
        if not some:
            continue
        by = {name: np.array([row.groups[name] for row in some]) for name in ("device", "engine", "dtype")}
        for number, metric in enumerate(METRICS):
            left = held[own][:, number]
            groups = by if metric == "token" else {**by, "cell": cells[own]}
            tables(f"{kind}: time of a {metric}, {how}", left, groups)
            broken += checked(kind, metric, left, cells[own], [str(name) for name in by["device"]])
        worst = max(set(cells[own]), key=lambda cell: np.median(np.abs(np.exp(held[cells == cell, 0]) - 1)))
        print(f"worst cell: {worst}")
        loops = [(row, row.loop.served()) for row in some]
        below = fmean(each.request_bound <= row.request and each.decode.bound <= row.token for row, each in loops)
        print(f"bound at most measured: {100 * below:.2f} %")
        print("the time of a request by plainer laws:")
        peers.compared([row.loop for row in some], [row.request for row in some], cells[own])
        if below < 0.99:
            broken.append(f"{kind}: a bound is above what was measured")
    if not ours:
        return broken
    print("\nas the constants stand, nothing held out")
    now = logs(rows, CONSTANTS)
    for kind in CLASSES:
        own = np.array([row.dense is (kind == "dense") for row in rows])
        for number, metric in enumerate(METRICS):
            if own.any():
                print(line(f"{kind} {metric}", now[own, number]))
    print("\nfit to all:", ", ".join(f"{name} {getattr(constants, name):.3g}" for name in fields(CONSTANTS)))
    return broken


THROUGHPUT = (0.13, 0.90)
"""Largest median error of the offline throughput of dense models, and the least share of runs within 20 %."""
MOST = 2048
"""Largest batch of the engine that was measured."""


def throughput(path: Path) -> list[str]:
    """Offline throughput, with the batch that the cache has room for. The constants were not fitted to it."""
    found: dict[Class, list[tuple[str, float]]] = {kind: [] for kind in CLASSES}
    asked: dict[Class, list[tuple[Loop, float, str]]] = {kind: [] for kind in CLASSES}
    left_out = []
    for one in csv.DictReader(path.open()):
        try:
            loaded, chip = model(one["model"]), device(one["device"])
        except TfacctError:
            left_out.append(one["cell"])
            continue
        kept = BF16_EACH if one["weights"] == "bf16" else width("fp8")
        split = Split(int(one["gpus"]))
        host = Host(loaded.ledger, chip, split, stored(one["model"], one["weights"]), BF16_EACH, kept)
        prompt, new = int(one["isl"]), int(one["osl"])
        limit = min(MOST, int(float(one["requests"] or MOST)))
        users = host.capacity(prompt + new, device_limit(1, chip).usable, limit)
        if not users or (split.devices > 1 and not chip.links.any):
            left_out.append(one["cell"])
            continue
        loop, measured = host.loop(users, prompt, new), float(one["output_tokens_per_s"])
        kind: Class = "experts" if loaded.ledger.experts else "dense"
        found[kind].append((chip.id, log(loop.served().rate / measured)))
        asked[kind].append((loop, users * new / measured, one["cell"]))
    broken = []
    print(f"\n{path.name}; left out: {', '.join(left_out) or 'none'}")
    for kind, each in found.items():
        if each:
            left = np.array([error for _, error in each])
            tables(f"{kind}: offline throughput, never fitted", left, {"device": np.array([name for name, _ in each])})
            loops, seconds, of = zip(*asked[kind], strict=True)
            print("by plainer laws (of what takes longer, so a bias above 1 is a rate too low):")
            peers.compared(loops, seconds, np.array(of))
            off = np.abs(np.exp(left) - 1)
            if kind == "dense" and (np.median(off) > THROUGHPUT[0] or (off <= NEAR).mean() < THROUGHPUT[1]):
                broken.append("dense throughput is above its limit")
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    broken = divided()
    if not (folder / "serving.csv").exists():
        print(
            f"time_error: no measured points at {folder}, so no estimate of time is validated here"
            " but that of these steps"
        )
        sys.exit(bool(broken))
    broken += serving(folder / "serving.csv")
    if (folder / "throughput.csv").exists():
        broken += throughput(folder / "throughput.csv")
    if (folder / "training.csv").exists():
        broken += training(folder / "training.csv")
    print("\n".join(["", *(broken or ["all errors within their limits"])]))
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
