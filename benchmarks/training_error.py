"""Errors of `tfacct time --train`: for time_error.py."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from errors import checked, device, line, named, tables
from fitting import DIVIDED, TRAINING, Array, held_out, share_inside
from megatron import published

from tfacct.accounts.metrics import Point, Recompute, flops_of
from tfacct.accounts.step_flops import recomputed_flops
from tfacct.ledger.workload import Workload
from tfacct.loading import devices
from tfacct.loading.find import find
from tfacct.loading.model import load_model
from tfacct.parallel.mesh import Mesh
from tfacct.timing.kernels import NoKernelError
from tfacct.timing.step_estimate import steps_alike
from tfacct.timing.training_time import (
    MEGATRON,
    MPT,
    RECENT,
    Trained,
    TrainingConstants,
    Work,
    step,
    work_of,
)
from tfacct.timing.validated import (
    NEWER_ENDS,
    NEWER_LAYOUTS,
    NEWER_STACKS,
    model_kind,
)


class Training(NamedTuple):
    """A measured training step, and the share of the peak that it attains."""

    cell: str
    device: devices.Device
    work: Work
    trained: Trained
    seconds: float
    utilization: float


SAME = {"llama-3-8b": "llama-3.1-8b"}
"""Presets of the same shape, under another name."""
LOOSE = 0.1
"""The ridge of training steps, whose runs determine the constants well."""
STEP = (0.08, 0.16)
"""Limits of a training step's median error, and of its p90."""


def training_logs(rows: Sequence[Training], constants: TrainingConstants) -> Array:
    """Logarithms of predicted over measured."""
    return np.array([log(step(row.work, row.device, row.trained, constants).seconds / row.seconds) for row in rows])


def read_training(path: Path) -> list[Training]:
    """Steps of MPT models, each built from its sizes. (Steps with SHARD_GRAD_OP send a third less than is assumed.)"""
    rows = []
    for one in csv.DictReader(path.open()):
        sizes = {
            "d_model": "hidden",
            "n_layers": "layers",
            "n_heads": "heads",
            "vocab_size": "vocab",
            "max_seq_len": "seq",
        }
        config: dict[str, Any] = {name: int(one[column]) for name, column in sizes.items()}
        config |= {
            "model_type": "mpt",
            "max_seq_len": int(one["seq"]),
            "expansion_ratio": int(one["ffn"]) // int(one["hidden"]),
        }
        ledger = load_model(one["model"], config).ledger
        seq, batch, gpus, accumulate = (int(one[name]) for name in ("seq", "micro_batch", "gpus", "grad_accum"))
        recompute: Recompute = "full" if one["recompute"] == "True" else "none"
        dtype = "fp8" if "fp8" in one["precision"] else "bf16"
        trained = Trained(Workload(seq, seq, batch), Mesh(fsdp=gpus), accumulate, recompute, dtype)
        seconds = trained.tokens / float(one["tokens_per_s_gpu"])
        work = work_of(ledger, trained)
        mfu = float(one["mfu_published"]) / 100
        rows.append(Training(one["cell"], device(one["device"]), work, trained, seconds, mfu))
    return rows


def training(path: Path) -> list[str]:
    """Errors of training steps, and errors of a constant utilization."""
    rows = read_training(path)
    by: dict[str, list[str]] = {
        "device": [row.device.id for row in rows],
        "cell": [row.cell for row in rows],
        "precision": [row.trained.dtype for row in rows],
        "recompute": [row.trained.recompute for row in rows],
    }
    print(f"\n{path.name}: {len(rows)} runs")
    left = _left(rows, "training step under FSDP", MPT, TRAINING, by, is_named=named(rows, ("training",)))
    broken = checked("training", "step", left, np.array(by["cell"]), by["device"])
    off = np.abs(np.exp(left) - 1)
    if np.median(off) > STEP[0] or np.quantile(off, 0.9) > STEP[1]:
        broken.append("training step is above its limit")
    return broken


def _left(
    rows: Sequence[Training],
    title: str,
    constants: TrainingConstants,
    fitted: Sequence[str],
    by: Mapping[str, Sequence[str]],
    *,
    is_named: bool = True,
) -> Array:
    """Logarithms with each cell held out; for other runs than in `VALIDATED`, by unchanged constants. Prints them next
    to those of a constant utilization."""
    groups = {name: np.array(of) for name, of in by.items()}
    left = training_logs(rows, constants)
    if is_named:
        logs, weights = partial(training_logs, rows), np.ones(len(rows))
        left, constants = held_out(logs, constants, fitted, groups["cell"], weights, LOOSE)
    tables(f"{title}, {'each cell held out' if is_named else 'constants unchanged'}", left, groups)
    attained = np.array([log(row.utilization) for row in rows])
    usual = median(row.utilization for row in rows)
    print(line("a plain roofline: all FLOPs at the peak", attained))
    print(line(f"constant utilization {usual:.3f}", attained - log(usual)))
    print("fit to all:", ", ".join(f"{name} {getattr(constants, name):.3g}" for name in fitted))
    return left


def recent(path: Path) -> list[str]:
    """Errors of steps of 2024 to 2026: under FSDP or DDP by stack, and in groups of layouts, dtypes and models."""
    found: dict[str, list[float]] = {}
    for one in csv.DictReader(path.open()):
        loaded = find(SAME.get(one["model"], one["model"]))
        if one["task"] == "sft" or not one["tokens_per_s_gpu"] or model_kind(loaded.ledger) not in ("dense", "experts"):
            continue
        seq, batch, gpus, total, tp, pp, cp, ep = (
            int(one[name] or 1) for name in ("seq", "micro_batch", "gpus", "global_batch", "tp", "pp", "cp", "ep")
        )
        accumulate = total * tp * pp * cp // (batch * gpus)
        dtype, chip = one["precision"] if one["precision"] in ("bf16", "nvfp4") else "fp8", device(one["device"])
        recompute: Recompute = "full" if one["recompute"] == "full" else "none"
        is_whole, frozen = tp * pp * cp == 1, one["task"] == "lora"
        shards = one["stack"] == "torchtitan" or (is_whole and not frozen and not loaded.ledger.experts)
        fsdp, dp = (gpus // (tp * pp * cp), 1) if shards else (1, gpus // (tp * pp * cp))
        mesh = Mesh(tp, tp > 1, fsdp, ep=ep, dp=dp, pp=pp, chunks=int(one["vp"] or 1), cp=cp)
        trained = Trained(Workload(seq, seq, batch), mesh, accumulate, recompute, dtype, frozen)
        alike = steps_alike(loaded, chip, trained)
        group = one["stack"] if is_whole and alike not in NEWER_LAYOUTS else alike
        try:
            work = work_of(loaded.ledger, trained)
        except NoKernelError:
            continue
        parts = step(work, chip, trained, MEGATRON if trained.megatron else RECENT)
        each = parts.seconds * trained.replica / trained.tokens * float(one["tokens_per_s_gpu"])
        found.setdefault(group, []).append(log(each))
    reported = {**{name.lower(): one for name, one in NEWER_STACKS.items()}, **NEWER_LAYOUTS}
    broken = []
    print("\ntraining steps of 2024 to 2026")
    for name, every in sorted(found.items()):
        left = np.array(every)
        print(line(name, left))
        inside = share_inside(left, np.arange(len(left)), *NEWER_ENDS)
        off = round(float(np.median(np.abs(np.exp(left) - 1))), 3)
        measured = replace(reported[name], runs=len(left), median=off, coverage=round(inside, 3))
        if reported[name] != measured:
            broken.append(f"{name} is {measured}")
    return broken


def divided() -> list[str]:
    """Errors of Megatron's published steps, each model held out, and errors of a constant utilization. FLOPs include
    recomputation."""
    rows, chip = list[Training](), devices.load("a100-sxm-80gb")
    for cell, trained, seconds, sizes in published():
        model = load_model(cell, {"model_type": "gpt2", **sizes})
        forward_and_backward = flops_of(Point(model.ledger, trained.work, train=True))
        again = int(recomputed_flops(model.ledger, trained.work.axes(), trained.recompute))
        flops = trained.accumulate * (forward_and_backward + again)
        attained = flops / trained.replica / chip.peak["bf16"] / seconds
        rows.append(Training(cell, chip, work_of(model.ledger, trained), trained, seconds, attained))
    by = {"cell": [row.cell for row in rows], "recompute": [str(row.trained.recompute) for row in rows]}
    print(f"\nMegatron's published steps: {len(rows)}")
    left = _left(rows, "training step under tensor and pipeline parallelism", MEGATRON, DIVIDED, by)
    return checked("divided", "step", left, np.array(by["cell"]), [chip.id] * len(rows))
